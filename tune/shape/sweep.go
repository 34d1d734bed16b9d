package shape

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/schedule/family"
)

// Sweep lists variants of Base. An empty list keeps Base's setting.
type Sweep struct {
	Base         Shape
	Replicas     []int // 0 means as many as the devices allow
	Stages       []int
	Tensors      []int
	MicroBatches []int // samples
	Chunks       []int
	Recomputes   []string
	Shards       []string
}

// ErrNothing means that no shape of a sweep fits.
var ErrNothing = errors.New("shape: no shape of the sweep fits the memory of the devices")

// mostShapes is the largest number of shapes that a sweep tries.
const mostShapes = 1 << 16

// check returns an error for numbers outside a shape's limits, for unknown settings, and for too many shapes.
func (w Sweep) check() error {
	n := 1
	for _, list := range []struct {
		what    string
		least   int
		numbers []int
	}{{"replicas", 0, w.Replicas}, {"stages", 1, w.Stages}, {"tensor", 1, w.Tensors}, {"micro_batch", 1, w.MicroBatches},
		{"chunks", 1, w.Chunks}, {"batch", 1, []int{w.Base.Batch}}, {"replicas", 0, []int{w.Base.Replicas}},
		{"stages", 0, []int{w.Base.Stages}}, {"tensor", 0, []int{w.Base.Tensor}},
		{"micro_batch", 0, []int{w.Base.MicroBatch}}, {"chunks", 0, []int{w.Base.Chunks}}} {
		for _, k := range list.numbers {
			if err := bounded(list.what, k, list.least); err != nil {
				return err
			}
		}
	}
	words := []Shape{w.Base}
	for _, recompute := range w.Recomputes {
		words = append(words, Shape{Recompute: recompute})
	}
	for _, shard := range w.Shards {
		words = append(words, Shape{Shard: shard})
	}
	for _, s := range words {
		if err := s.filled().worded(); err != nil {
			return err
		}
	}
	for _, length := range []int{len(w.Replicas), len(w.Stages), len(w.Tensors), len(w.MicroBatches), len(w.Chunks),
		len(w.Recomputes), len(w.Shards)} {
		if n *= max(1, min(length, mostShapes+1)); n > mostShapes {
			return fmt.Errorf("shape: a sweep of more than %d shapes; give shorter lists", mostShapes)
		}
	}
	return nil
}

// Ordered returns an error if the schedule that the sweep names orders no pipeline with any of its numbers of chunks.
// Only shapes of one stage would then be left, and these have no schedule. If the sweep asks only for one stage,
// Ordered returns no error.
func (w Sweep) Ordered() (err error) {
	if w.Base.Schedule == "" || slices.Equal(w.Stages, []int{1}) {
		return nil
	}
	chunks := w.Chunks
	if f, err := family.Named(w.Base.Schedule); chunks == nil && err == nil && f.Chunks < 0 {
		chunks = []int{2}
	}
	if chunks == nil {
		chunks = []int{0} // 0 means the schedule's own number
	}
	for _, v := range chunks {
		s := Shape{Schedule: w.Base.Schedule, Stages: 2, Chunks: v}.filled()
		if err = s.ordered(); err == nil {
			return nil
		}
	}
	return err
}

// all lists the shapes of a sweep that divide batch and devices. `why` is the reason for the first shape that was left
// out.
func (w Sweep) all(c *cluster.Cluster) (out []Shape, why error) {
	out = []Shape{w.Base}
	vary := func(n int, set func(s *Shape, k int)) {
		if n == 0 {
			return
		}
		var next []Shape
		for _, s := range out {
			for k := range n {
				t := s
				set(&t, k)
				next = append(next, t)
			}
		}
		out = next
	}
	w.Tensors, w.Stages, w.Replicas = unique(w.Tensors), unique(w.Stages), unique(w.Replicas)
	w.MicroBatches, w.Chunks = unique(w.MicroBatches), unique(w.Chunks)
	w.Recomputes, w.Shards = unique(w.Recomputes), unique(w.Shards)
	vary(len(w.Tensors), func(s *Shape, k int) { s.Tensor = w.Tensors[k] })
	vary(len(w.Stages), func(s *Shape, k int) { s.Stages = w.Stages[k] })
	vary(len(w.Replicas), func(s *Shape, k int) {
		if s.Replicas = w.Replicas[k]; s.Replicas == 0 {
			s.Replicas = max(1, len(c.Devices)/(max(1, s.Stages)*max(1, s.Tensor)))
		}
	})
	vary(len(w.MicroBatches), func(s *Shape, k int) { s.MicroBatch = w.MicroBatches[k] })
	vary(len(w.Chunks), func(s *Shape, k int) { s.Chunks = w.Chunks[k] })
	vary(len(w.Recomputes), func(s *Shape, k int) { s.Recompute = w.Recomputes[k] })
	vary(len(w.Shards), func(s *Shape, k int) { s.Shard = w.Shards[k] })
	out = slices.DeleteFunc(out, func(s Shape) bool {
		err := s.filled().divides(c)
		if why == nil {
			why = err
		}
		return err != nil
	})
	for i := range out {
		out[i] = out[i].filled()
	}
	return out, why
}

// unique returns `list` without duplicates.
func unique[T comparable](list []T) (out []T) {
	for _, one := range list {
		if !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}

// Run predicts all shapes of a sweep. The fastest that fits comes first, and shapes that do not fit come last. It
// leaves out shapes that the model or the schedule does not allow; if none is left, it returns one shape's error.
func Run(m *model.Model, c *cluster.Cluster, w Sweep) ([]*Prediction, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	shapes, why := w.all(c)
	if len(shapes) == 0 {
		return nil, why
	}
	found, errs := make([]*Prediction, len(shapes)), make([]error, len(shapes))
	var known costs
	each(len(shapes), func(i int) {
		a, err := lay(m, c, shapes[i], &known)
		if err == nil {
			found[i], err = a.predict(m, false)
		}
		errs[i] = err
	})
	found = slices.DeleteFunc(found, func(p *Prediction) bool { return p == nil })
	if len(found) == 0 {
		return nil, errs[0]
	}
	slices.SortStableFunc(found, rank)
	return found, nil
}

// rank orders predictions: those that fit first, then by step time.
func rank(a, b *Prediction) int {
	if a.Fits != b.Fits {
		if a.Fits {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.StepS, b.StepS)
}
