package run

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/wire"
)

// phaseCollective marks messages of collectives that this package does itself, so that
// they are not taken for transfers.
const phaseCollective = 101

func partsOf(l *lent) []wire.Part {
	parts := make([]wire.Part, len(l.vectors))
	for i, v := range l.vectors {
		parts[i] = wire.Part{Name: v.Name, DType: v.Tensor.DType().String(), Shape: v.Tensor.Shape(), Data: l.hosts[i].Bytes()}
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
	if err := w.readLosses(h, in); err != nil {
		return err
	}
	if err := w.land(h); err != nil {
		return err
	}
	uses, err := h.TiedUses()
	if err != nil {
		return err
	}
	vectors := make([]stage.Vector, len(uses))
	var size int64
	for i, u := range uses {
		vectors[i] = u.Vector
		size += u.Tensor.Bytes()
	}
	l, err := w.lend(h, vectors)
	if err != nil {
		return err
	}
	members, ranks := w.x.program.Group(in)
	epoch := w.x.epoch
	w.x.besides(w, in, time.Now(), size, func(ctx context.Context) error {
		if err := l.wait(); err != nil {
			return err
		}
		var m wire.Message
		for i, p := range partsOf(l) {
			p.Shape, p.Data = []int64{int64(uses[i].Layer)}, bytes.Clone(p.Data)
			m = append(m, p)
		}
		got, err := w.exchange(ctx, members, ranks, in, epoch, m)
		if err != nil {
			return err
		}
		got[in.Stage] = m
		err = w.sumUses(uses, l, got)
		l.summed.Store(err == nil)
		return err
	})
	return nil
}

// sumUses sums, for every parameter among uses, what all stages gave for it. The parts'
// shape is the layer of the use, which orders the sum.
func (w *worker) sumUses(uses []stage.TiedUse, l *lent, given map[int32]wire.Message) error {
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
		copy(l.hosts[i].Bytes(), total)
	}
	return nil
}

// norm shares the squares of the final gradients and has every stage learn by how much
// to scale its own.
func (w *worker) norm(h *holding, in schedule.Instruction) error {
	if err := w.readLosses(h, in); err != nil {
		return err
	}
	if err := w.land(h); err != nil {
		return err
	}
	own, err := w.squares(h)
	if err != nil {
		return err
	}
	members, ranks := w.x.program.Group(in)
	first, end := w.x.program.Covers(in, w.x.minibatches)
	epoch, step, covered := w.x.epoch, w.x.base+end-1, float64(end-first)
	w.x.besides(w, in, time.Now(), own.bytes(), func(ctx context.Context) error {
		squares, err := own.numbers()
		if err != nil {
			return err
		}
		for i := range squares {
			squares[i] /= covered * covered // of the mean over the minibatches, not of their sum
		}
		m := wire.Message{{Name: "squares", DType: engine.Float64.String(), Shape: []int64{int64(len(squares))}, Data: engine.Bytes(squares)}}
		got, err := w.exchange(ctx, members, ranks, in, epoch, m)
		if err != nil {
			return err
		}
		got[in.Stage] = m
		var all []float64
		for s := range int32(w.x.program.Stages) { // stages ascend, and so do the layers in each: model order
			for _, p := range got[s] {
				all = append(all, engine.Numbers[float64](p.Data)...)
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

// squares fetches the sums of squares of a stage's gradients. Whoever reads them frees them.
func (w *worker) squares(h *holding) (*lent, error) {
	t, err := h.Norms()
	if err != nil || t == nil {
		return &lent{}, err
	}
	defer t.Free()
	return w.fetch([]stage.Vector{{Name: "squares of gradients", Tensor: t}})
}
