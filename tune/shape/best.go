package shape

import (
	"cmp"
	"runtime"
	"slices"
	"sync"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
)

// Wide returns one sweep for each number of stages, and fills in what w leaves open. Numbers of stages are powers of
// two and numbers that divide the blocks, or the blocks plus two. Groups are powers of two, and micro-batches divide
// the batch. Chunks give each virtual stage the same number of blocks.
func (w Sweep) Wide(m *model.Model, c *cluster.Cluster) []Sweep {
	blocks := 0
	at := ""
	for i := range m.Layers {
		if b := plan.BlockOf(m.Layers[i].Name); b != at {
			if at = b; b != "" {
				blocks++
			}
		}
	}
	even := func(n int) bool { return blocks%n == 0 || (blocks+2)%n == 0 }
	numbers := func(list []int, most int, admits func(n int) bool) []int {
		if list != nil {
			return list
		}
		for n := 1; n <= most; n++ {
			if admits(n) {
				list = append(list, n)
			}
		}
		return list
	}
	power := func(n int) bool { return n&(n-1) == 0 }
	w.Tensors = numbers(w.Tensors, min(8, c.Levels[0].Size), power)
	w.MicroBatches = numbers(w.MicroBatches, mostSamples, func(n int) bool { return w.Base.Batch%n == 0 })
	if w.Replicas == nil {
		w.Replicas = []int{0}
	}
	if w.Recomputes == nil {
		w.Recomputes = []string{"none", "selective", "full"}
	}
	var out []Sweep
	for _, p := range numbers(w.Stages, min(mostStages, blocks, len(c.Devices)), func(n int) bool {
		return power(n) || even(n)
	}) {
		one := w
		one.Stages = []int{p}
		if p == 1 {
			one.Chunks = []int{1}
		}
		one.Chunks = numbers(one.Chunks, mostChunks, func(v int) bool { return v == 1 || v*p <= blocks && even(v*p) })
		out = append(out, one)
	}
	return out
}

// The largest values that Wide tries: samples of a micro-batch, stages, virtual stages of a device.
const (
	mostSamples = 128
	mostStages  = 64
	mostChunks  = 24
)

// Best returns the fastest shape of the sweeps that fits in memory. It returns the same as Run's first, but without
// predicting every shape. It tries shapes in the order of their lower bounds and stops when the bound exceeds the
// best step so far.
func Best(m *model.Model, c *cluster.Cluster, sweeps ...Sweep) (*Prediction, error) {
	type candidate struct {
		s     Shape
		least float64
	}
	var shapes []Shape
	var why error
	for _, w := range sweeps {
		if err := w.check(); err != nil {
			return nil, err
		}
		some, err := w.all(c)
		if shapes = append(shapes, some...); why == nil {
			why = err
		}
	}
	if len(shapes) == 0 {
		return nil, why
	}
	var known costs
	candidates, errs := make([]candidate, len(shapes)), make([]error, len(shapes))
	each(len(shapes), func(i int) {
		a, err := lay(m, c, shapes[i], &known)
		if errs[i] = err; err == nil {
			candidates[i] = candidate{a.s, a.least()}
		}
	})
	for i, err := range errs {
		if err == nil {
			continue
		}
		if candidates[i].least = -1; why == nil {
			why = err
		}
	}
	candidates = slices.DeleteFunc(candidates, func(a candidate) bool { return a.least < 0 })
	if len(candidates) == 0 {
		return nil, why
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.least, b.least) })
	var lock sync.Mutex
	var best *Prediction
	first := 0 // index of best in candidates
	each(len(candidates), func(i int) {
		lock.Lock()
		hopeless := best != nil && candidates[i].least > best.StepS
		lock.Unlock()
		if hopeless {
			return
		}
		a, err := lay(m, c, candidates[i].s, &known)
		if err != nil || !a.mayFit() {
			return
		}
		p, err := a.predict(m, false)
		if err != nil || !p.Fits {
			return
		}
		lock.Lock()
		defer lock.Unlock()
		if best == nil || p.StepS < best.StepS || p.StepS == best.StepS && i < first {
			best, first = p, i
		}
	})
	if best == nil {
		return nil, ErrNothing
	}
	return best, nil
}

// each calls do for 0 to n-1, on GOMAXPROCS goroutines.
func each(n int, do func(i int)) {
	var wait sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(crash.Caught(func() {
			for i := range next {
				do(i)
			}
		}))
	}
	for i := range n {
		next <- i
	}
	close(next)
	wait.Wait()
}
