package run

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/stage/update"
)

// updates makes the updates that are due after a micro-batch. It sums gradients over replicas in rank order, and over
// the uses of a tied parameter in layer order. It sums the terms of the norm in model order.
func (w *twin) updates(id int) error {
	var due []int
	for i := range w.stages {
		if g := w.group(i); (id+1)%g == 0 || id == w.micros-1 {
			due = append(due, i)
		}
	}
	for _, i := range due {
		// Asynchronous data parallelism averages buffers only at the end.
		if err := w.sumReplicas(w.stages[i], w.c.Plan.Schedule != "dp-async" || id == w.micros-1); err != nil {
			return err
		}
	}
	if err := w.sumTied(due); err != nil {
		return err
	}
	scale := 1.0
	if w.c.Train.Clip > 0 && len(due) > 0 {
		if len(due) < len(w.stages) {
			return fmt.Errorf("stages update apart; there is no common norm")
		}
		var squares []float64
		for _, i := range due {
			of, err := w.squares(w.stages[i][0])
			if err != nil {
				return err
			}
			for _, q := range of {
				squares = append(squares, q/(w.covered(i, id)*w.covered(i, id)))
			}
		}
		norm := stage.GlobalNorm(squares)
		w.norms = append(w.norms, norm)
		scale = optim.ClipScale(norm, w.c.Train.Clip)
	}
	step := id / w.c.Plan.MicroBatches
	for _, i := range due {
		for _, s := range w.stages[i] {
			if err := w.load(s, w.latest(i)); err != nil {
				return err
			}
			by := optim.Step{Rate: w.c.Train.Rate.At(step), GradScale: scale / w.covered(i, id)}
			plainly, err := update.New(update.Plain, update.Config{Optimizer: w.c.Train.Optimizer}, []*stage.Stage{s})
			if err != nil {
				return err
			}
			if err := plainly[0].Update(update.Step{Step: by}); err != nil {
				return err
			}
		}
		now, err := w.bytes(w.stages[i][0])
		if err != nil {
			return err
		}
		w.versions[i] = append(w.versions[i], now)
	}
	return nil
}

// sumTied adds up the gradients of all stages' layers for each parameter that they share.
func (w *twin) sumTied(due []int) error {
	uses := map[string][]stage.TiedUse{}
	firsts := map[string][]stage.TiedUse{} // the first use on each replica, which gets the sum
	for _, i := range due {
		for r, s := range w.stages[i] {
			all, err := s.Gradients.TiedUses()
			if err != nil {
				return err
			}
			seen := map[string]bool{}
			for _, u := range all {
				if r == 0 {
					uses[u.Param.Name] = append(uses[u.Param.Name], u)
				}
				if !seen[u.Param.Name] {
					firsts[u.Param.Name] = append(firsts[u.Param.Name], u)
				}
				seen[u.Param.Name] = true
			}
		}
	}
	for name, terms := range uses {
		slices.SortFunc(terms, func(a, b stage.TiedUse) int { return a.Layer - b.Layer })
		total := bytes.Clone(w.memory(terms[0].Tensor))
		for _, u := range terms[1:] {
			if err := w.c.Engine.SumInto(total, w.memory(u.Tensor), u.Tensor.DType()); err != nil {
				return err
			}
		}
		for _, u := range firsts[name] {
			copy(w.memory(u.Tensor), total)
		}
	}
	return nil
}

// viewer is a device with host memory whose calls return when the work is done.
type viewer interface {
	View(t engine.Tensor) ([]byte, error)
}

// memory returns a tensor's own memory on a synchronous device.
func (w *twin) memory(t engine.Tensor) []byte {
	data, err := w.dev.(viewer).View(t)
	if err != nil {
		panic(err)
	}
	return data
}

// squares returns the sums of squares of a stage's gradients.
func (w *twin) squares(s *stage.Stage) ([]float64, error) {
	t, err := s.Gradients.Norms()
	if err != nil || t == nil {
		return nil, err
	}
	defer t.Free()
	return slices.Clone(engine.Numbers[float64](w.memory(t))), nil
}

// sumReplicas gives every replica the sums of all replicas' gradients, added in rank order. If `buffers` is set, it
// also gives them the means of the buffers.
func (w *twin) sumReplicas(replicas []*stage.Stage, buffers bool) error {
	if len(replicas) == 1 {
		return nil
	}
	all := make([][]stage.Vector, len(replicas))
	for r, s := range replicas {
		for l := s.First; l <= s.Last; l++ {
			gradients, err := s.Gradients.OfLayer(l)
			if err != nil {
				return err
			}
			all[r] = append(all[r], gradients...)
		}
		if buffers {
			all[r] = append(all[r], s.Statistics.Vectors()...)
		}
	}
	for i, total := range all[0] {
		for _, other := range all[1:] {
			if err := w.c.Engine.SumInto(w.memory(total.Tensor), w.memory(other[i].Tensor), total.Tensor.DType()); err != nil {
				return err
			}
		}
		for _, other := range all[1:] {
			copy(w.memory(other[i].Tensor), w.memory(total.Tensor))
		}
	}
	for _, s := range replicas {
		if !buffers {
			break
		}
		if err := s.Statistics.Average(len(replicas)); err != nil {
			return err
		}
	}
	return nil
}
