package run

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/wire"
)

// phaseCollective marks messages of collectives that this package does itself, so that
// they are not taken for transfers.
const phaseCollective = 101

func partsOf(vectors []stage.Vector) []wire.Part {
	parts := make([]wire.Part, len(vectors))
	for i, v := range vectors {
		parts[i] = wire.Part{Name: v.Name, DType: v.DType.String(), Shape: v.Shape, Data: v.Data}
	}
	return parts
}

// exchange hands m to every member of a collective on another stage and returns what
// each of those stages gave, by stage. Replicas of a stage hold the same, so the first
// speaks for all; pairs of members agree on a tag without knowing the whole group.
func (w *worker) exchange(ctx context.Context, members []schedule.Instruction, ranks []int, in schedule.Instruction, epoch uint32, m wire.Message) (map[int32]wire.Message, error) {
	tag := func(from, to schedule.Instruction) wire.Tag {
		t := tagOf(from, epoch)
		t.Phase, t.Pair = phaseCollective, uint32(to.Stage)<<10|uint32(to.Replica)
		return t
	}
	for i, member := range members {
		if member.Stage != in.Stage && in.Replica == 0 {
			if err := w.ep.Send(ranks[i], tag(in, member), slices.Clone(m)); err != nil {
				return nil, err
			}
		}
	}
	got := map[int32]wire.Message{}
	for i, member := range members {
		if member.Stage != in.Stage && member.Replica == 0 {
			theirs, err := w.ep.Receive(ctx, ranks[i], tag(member, in))
			if err != nil {
				return nil, err
			}
			got[member.Stage] = theirs
		}
	}
	return got, nil
}

// sumTied adds up the gradients of all uses of the parameters that this stage shares with
// others, in layer order, so that every holder steps its copy by the same.
func (w *worker) sumTied(h *holding, in schedule.Instruction) error {
	uses, err := h.TiedUses()
	if err != nil {
		return err
	}
	members, ranks := w.x.program.Group(in)
	epoch := w.x.epoch
	var size int64
	for _, u := range uses {
		size += int64(len(u.Data))
	}
	w.x.besides(w, in, time.Now(), size, func(ctx context.Context) error {
		var m wire.Message
		for _, u := range uses {
			m = append(m, wire.Part{Name: u.Param.Name, DType: u.DType.String(), Shape: []int64{int64(u.Layer)}, Data: bytes.Clone(u.Data)})
		}
		got, err := w.exchange(ctx, members, ranks, in, epoch, m)
		if err != nil {
			return err
		}
		got[in.Stage] = m
		return w.sumUses(uses, got)
	})
	return nil
}

// sumUses sums, for every parameter among uses, what all stages gave for it. The parts'
// shape is the layer of the use, which orders the sum.
func (w *worker) sumUses(uses []stage.TiedUse, given map[int32]wire.Message) error {
	for i, u := range uses {
		if i > 0 && uses[i-1].Param == u.Param {
			continue
		}
		var terms []wire.Part
		for _, m := range given {
			for _, p := range m {
				if p.Name == u.Param.Name {
					terms = append(terms, p)
				}
			}
		}
		slices.SortFunc(terms, func(a, b wire.Part) int { return int(a.Shape[0] - b.Shape[0]) })
		total := bytes.Clone(terms[0].Data)
		for _, t := range terms[1:] {
			if err := w.job.sum(total, t.Data, t.DType); err != nil {
				return err
			}
		}
		copy(u.Data, total)
	}
	return nil
}

// norm shares the squares of the final gradients and has every stage learn by how much
// to scale its own.
func (w *worker) norm(h *holding, in schedule.Instruction) error {
	vectors, err := h.Norms()
	if err != nil {
		return err
	}
	members, ranks := w.x.program.Group(in)
	first, end := w.x.program.Covers(in, w.x.minibatches)
	epoch, step, covered := w.x.epoch, w.x.base+end-1, float64(end-first)
	w.x.besides(w, in, time.Now(), int64(8*len(vectors)), func(ctx context.Context) error {
		squares := make([]float64, len(vectors))
		for i, v := range vectors {
			squares[i] = stage.SquareSum(v) / (covered * covered) // of the mean over the minibatches, not of their sum
		}
		m := wire.Message{{Name: "squares", DType: engine.Float64.String(), Shape: []int64{int64(len(squares))}, Data: floatBytes(squares)}}
		got, err := w.exchange(ctx, members, ranks, in, epoch, m)
		if err != nil {
			return err
		}
		got[in.Stage] = m
		var all []float64
		for s := range int32(w.x.program.Stages) { // stages ascend, and so do the layers in each: model order
			for _, p := range got[s] {
				all = append(all, floatsOf(p.Data)...)
			}
		}
		total := stage.GlobalNorm(all)
		if !isFinite(total) {
			err := &notFiniteError{fmt.Sprintf("the gradient norm of step %d is %v on stage %d; lower the learning rate", step, total, in.Stage)}
			if w.x.program.PostValidate {
				h.norm = verdict{true, fmt.Errorf("run: %w; the step was taken back", err)}
				return nil
			}
			return err
		}
		if h.scale = optim.ClipScale(total, w.job.clip); h.scale != 1 && w.x.program.PostValidate {
			h.norm.refused = true
		}
		return nil
	})
	return nil
}

func floatBytes(xs []float64) []byte {
	if len(xs) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&xs[0])), 8*len(xs))
}

func floatsOf(b []byte) []float64 {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*float64)(unsafe.Pointer(&b[0])), len(b)/8)
}
