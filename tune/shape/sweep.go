package shape

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/model"
)

// Sweep is shapes that differ from one in some settings; an empty list keeps what that has.
type Sweep struct {
	Base         Shape
	Replicas     []int // 0: as many as the batch and the devices allow
	Stages       []int
	Tensors      []int
	MicroBatches []int // samples
	Chunks       []int
	Recomputes   []string
	Shards       []string
}

// ErrNothing is a sweep of which no shape fits.
var ErrNothing = errors.New("shape: no shape of the sweep fits the memory of the devices")

// all lists the shapes of a sweep that divide the batch, and what they are laid over.
func (w Sweep) all(devices int) []Shape {
	out := []Shape{w.Base.filled()}
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
	vary(len(w.Tensors), func(s *Shape, k int) { s.Tensor = w.Tensors[k] })
	vary(len(w.Stages), func(s *Shape, k int) { s.Stages = w.Stages[k] })
	vary(len(w.Replicas), func(s *Shape, k int) {
		if s.Replicas = w.Replicas[k]; s.Replicas == 0 {
			s.Replicas = devices / (s.Stages * s.Tensor)
		}
	})
	vary(len(w.MicroBatches), func(s *Shape, k int) { s.MicroBatch = w.MicroBatches[k] })
	vary(len(w.Chunks), func(s *Shape, k int) {
		if s.Chunks = w.Chunks[k]; s.Chunks > 1 {
			s.Schedule = "interleaved"
		}
	})
	vary(len(w.Recomputes), func(s *Shape, k int) { s.Recompute = w.Recomputes[k] })
	vary(len(w.Shards), func(s *Shape, k int) { s.Shard = w.Shards[k] })
	return slices.DeleteFunc(out, func(s Shape) bool {
		return s.Replicas < 1 || s.MicroBatch < 1 || s.Batch%(s.Replicas*s.MicroBatch) != 0 || s.Devices() > devices ||
			s.Stages == 1 && s.Chunks > 1 || s.Tensor == 1 && s.SequenceParallel && !w.Base.SequenceParallel ||
			s.Chunks > 1 && s.MicroBatches()%s.Stages != 0
	})
}

// Run predicts all shapes of a sweep, the fastest that fits first and those that do not last. Shapes that their model
// or their schedule does not admit are left out; if all are, the error is one's.
func Run(m *model.Model, c *cluster.Cluster, w Sweep) ([]*Prediction, error) {
	shapes := w.all(len(c.Devices))
	if len(shapes) == 0 {
		return nil, fmt.Errorf("shape: no shape of the sweep divides a batch of %d over %d devices", w.Base.Batch,
			len(c.Devices))
	}
	found, errs := make([]*Prediction, len(shapes)), make([]error, len(shapes))
	var wait sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(crash.Caught(func() {
			for i := range next {
				found[i], errs[i] = Predict(m, c, shapes[i])
			}
		}))
	}
	for i := range shapes {
		next <- i
	}
	close(next)
	wait.Wait()
	found = slices.DeleteFunc(found, func(p *Prediction) bool { return p == nil })
	if len(found) == 0 {
		return nil, errs[0]
	}
	slices.SortStableFunc(found, func(a, b *Prediction) int {
		if a.Fits != b.Fits {
			if a.Fits {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.StepS, b.StepS)
	})
	return found, nil
}

// Best is the fastest shape of a sweep that fits.
func Best(m *model.Model, c *cluster.Cluster, w Sweep) (*Prediction, error) {
	all, err := Run(m, c, w)
	if err != nil {
		return nil, err
	}
	if !all[0].Fits {
		return nil, ErrNothing
	}
	return all[0], nil
}
