package process

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire"
)

func buffersOf(l *lent) []wire.Buffer {
	all := make([]wire.Buffer, len(l.vectors))
	for i, v := range l.vectors {
		all[i] = wire.Buffer{DType: wireType(v.Tensor.DType()), Shape: v.Tensor.Shape(), Data: l.hosts[i].Bytes()}
	}
	return all
}

// given holds, by stage, what each stage contributed to a collective between stages.
type given map[int32][]wire.Buffer

// exchange sends parts to the members of a collective on other stages. It returns the parts that each of those stages
// sent, and this stage's own. All replicas of a stage have the same parts, so only one of them sends to each member
// (see speaker). Before exchange sends anything, it posts a slot for each message that it will receive.
func (h *holding) exchange(ctx context.Context, in schedule.Instruction, parts []wire.Buffer) (given, error) {
	w := h.w
	members, ranks := w.x.now.program.Group(in)
	got := given{in.Stage: parts}
	var from []wire.Edge
	var stages []int32
	for i, member := range members {
		if member.Stage == in.Stage || member.Replica != speaker(w.x.now.program, member, in) {
			continue
		}
		e, known := w.x.ends.table.Find(pairName(member, ranks[i], in, w.rank))
		if !known {
			return nil, fmt.Errorf("no edge from stage %d", member.Stage)
		}
		w.mail.port.Post(e, 1)
		from, stages = append(from, e), append(stages, member.Stage)
	}
	for i, member := range members {
		if member.Stage == in.Stage || in.Replica != speaker(w.x.now.program, in, member) {
			continue
		}
		e, known := w.x.ends.table.Find(pairName(in, w.rank, member, ranks[i]))
		if !known {
			return nil, fmt.Errorf("no edge to stage %d", member.Stage)
		}
		if err := w.mail.port.Send(e, uint64(in.Key()), 0, slices.Clone(parts), nil); err != nil {
			return nil, err
		}
	}
	for i, e := range from {
		a, err := w.mail.port.Receive(ctx, e)
		if err != nil {
			return nil, err
		}
		if sent := schedule.Key(a.Key).Instruction(); sent.Stage != stages[i] || sent.Micro != in.Micro {
			return nil, fmt.Errorf("%v came from stage %d where minibatch %d is due", sent, stages[i], in.Micro)
		}
		got[stages[i]] = a.Parts
	}
	return got, nil
}

// turns holds a channel for each kind of collective. The channel is closed when the stage's last issued collective of
// that kind ends.
type turns map[schedule.Kind]chan struct{}

// next makes a collective wait for the collectives of the same kind that the stage issued earlier. The messages on an
// edge must be sent in the order of the sender's list.
func (t turns) next(kind schedule.Kind, work func(context.Context) error) func(context.Context) error {
	before, over := t[kind], make(chan struct{})
	t[kind] = over
	return func(ctx context.Context) error {
		defer close(over)
		if before != nil {
			<-before // closed at the latest when the run ends
		}
		return work(ctx)
	}
}

// sumTied sums the gradients of the parameters that this stage shares with other stages. For each parameter, the
// gradients of all its uses are added in the order of layers. So every copy of the parameter is updated with the same
// sum.
func (h *holding) sumTied(in schedule.Instruction) error {
	w := h.w
	if err := h.losses.read(in); err != nil {
		return err
	}
	if err := h.lending.land(); err != nil {
		return err
	}
	uses, err := h.stage.Gradients.TiedUses()
	if err != nil {
		return err
	}
	vectors := make([]stage.Vector, len(uses))
	var size int64
	for i, u := range uses {
		vectors[i] = u.Vector
		size += u.Tensor.Bytes()
	}
	l, err := h.lending.lend(waitTied, vectors)
	if err != nil {
		return err
	}
	w.besides(in, time.Now(), size, h.turns.next(in.Kind, func(ctx context.Context) error {
		if err := l.wait(); err != nil {
			return err
		}
		mine := buffersOf(l)
		for i := range mine {
			mine[i].Value, mine[i].Data = w.job.Network.number(uses[i].Param), bytes.Clone(mine[i].Data)
		}
		got, err := h.exchange(ctx, in, mine)
		if err != nil {
			return err
		}
		err = h.sumUses(uses, l, got)
		l.summed.Store(err == nil)
		return err
	}))
	return nil
}

// number returns the position of a parameter among all parameters of the model. The parameters of each piece of a
// divided layer count separately. Messages use the number as the parameter's name.
func (n *Network) number(p *stage.Param) uint32 {
	at := p.Index
	for i := range p.Layer {
		at += len(n.Graph.Model.Layers[i].Params)
	}
	return uint32(at)
}

// sumUses sums the gradients that all stages contributed, for every parameter in uses. They are added in the order of
// layers: by stage and, within a stage, by layer.
func (h *holding) sumUses(uses []stage.TiedUse, l *lent, all given) error {
	j := h.w.job
	stages := slices.Sorted(maps.Keys(all))
	for i, u := range uses {
		if i > 0 && uses[i-1].Param == u.Param {
			continue
		}
		number := j.Network.number(u.Param)
		var total []byte
		for _, s := range stages {
			for _, b := range all[s] {
				if b.Value != number {
					continue
				}
				if total == nil {
					total = bytes.Clone(b.Data)
				} else if err := j.sum(total, b.Data, b.DType); err != nil {
					return err
				}
			}
		}
		copy(l.hosts[i].Bytes(), total)
	}
	return nil
}

// norm sends the sums of squares of the final gradients to all other stages. Each stage then adds up the sums of all
// stages, and computes from the total the clipping factor for its own gradients. If there are no other stages, norm
// leaves the work to the update.
func (h *holding) norm(in schedule.Instruction) error {
	w := h.w
	if p := w.x.now.program; len(p.Placement[in.Pipeline]) == 1 && !p.ValidatesLater() {
		h.updates.norms = true
		h.leaves(in)
		return nil
	}
	if err := h.losses.read(in); err != nil {
		return err
	}
	if err := h.lending.land(); err != nil {
		return err
	}
	own, err := h.squares()
	if err != nil {
		return err
	}
	w.besides(in, time.Now(), own.bytes(), h.turns.next(in.Kind, func(ctx context.Context) error {
		squares, err := h.mean(in, own)
		if err != nil {
			return err
		}
		mine := []wire.Buffer{{DType: wire.F64, Shape: []int64{int64(len(squares))}, Data: engine.Bytes(squares)}}
		got, err := h.exchange(ctx, in, mine)
		if err != nil {
			return err
		}
		var all []float64
		for _, s := range slices.Sorted(maps.Keys(got)) { // in the model's order of layers
			for _, b := range got[s] {
				all = append(all, engine.Numbers[float64](b.Data)...)
			}
		}
		return h.judge(in, all)
	}))
	return nil
}

// ownNorm computes the norm of a model that is one stage, as a part of its update.
func (h *holding) ownNorm(in schedule.Instruction) error {
	own, err := h.squares()
	if err != nil {
		return err
	}
	all, err := h.mean(in, own)
	if err != nil {
		return err
	}
	return h.judge(in, all)
}

// mean returns the squares of the mean gradient over the minibatches that an instruction covers.
func (h *holding) mean(in schedule.Instruction, own *lent) ([]float64, error) {
	first, end := h.w.x.now.covers(in)
	covered := float64(end - first)
	squares, err := own.numbers()
	for i := range squares {
		squares[i] /= covered * covered
	}
	return squares, err
}

// judge computes the norm from the squares of all stages, records it, and stores the verdict that follows from it.
func (h *holding) judge(in schedule.Instruction, squares []float64) error {
	w := h.w
	_, end := w.x.now.covers(in)
	step, total := w.x.now.base+end-1, stage.GlobalNorm(squares)
	v := verdict{scale: optim.ClipScale(total, w.job.Updates.Clip)}
	if !isFinite(total) {
		v.forGood = &notFiniteError{fmt.Sprintf("the gradient norm of step %d is %v on stage %d; lower the learning rate",
			trace.StepNumber(step), total, in.Stage)}
	}
	w.x.mu.Lock()
	w.x.ledger.record.Norm(step, total)
	w.x.mu.Unlock()
	return h.updates.judged(v)
}

// squares fetches the sums of squares of a stage's gradients. The reader frees them.
func (h *holding) squares() (*lent, error) {
	t, err := h.updates.by.Norms()
	if err != nil || t == nil {
		return &lent{}, err
	}
	defer t.Free()
	return h.w.fetch(waitSquares, []stage.Vector{{Name: "squares of gradients", Tensor: t}})
}
