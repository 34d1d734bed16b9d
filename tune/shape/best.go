package shape

import (
	"cmp"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule/family"
)

// Wide returns one sweep for each number of stages, and fills in the settings that w leaves open:
//
//   - A number of stages is a power of two, or divides the blocks or the blocks plus two.
//   - Sizes of groups are powers of two, and sizes of micro-batches divide the batch.
//   - With one stage the number of chunks is 1. Otherwise it is the schedule's own. If the schedule has no fixed
//     number, it is 1, or any with which the number of virtual stages divides the blocks or the blocks plus two.
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
	even := func(n int) bool { return n > 0 && (blocks%n == 0 || (blocks+2)%n == 0) }
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
	fixed := 0 // the schedule's number of chunks, as in family.Family; -1 means any number
	if f, err := family.Named(w.Base.Schedule); err == nil {
		fixed = f.Chunks
	}
	for _, p := range numbers(w.Stages, min(mostStages, max(1, blocks), len(c.Devices)), func(n int) bool {
		return power(n) || even(n)
	}) {
		one := w
		one.Stages = []int{p}
		switch {
		case p == 1 && (w.Chunks == nil || slices.Contains(w.Chunks, 1)):
			one.Chunks = []int{1}
		case w.Chunks == nil && fixed > 1:
			one.Chunks = []int{fixed}
		}
		one.Chunks = numbers(one.Chunks, mostChunks, func(v int) bool { return v == 1 || v*p <= blocks && even(v*p) })
		out = append(out, one)
	}
	return out
}

// The largest values that Wide tries. mostSamples limits the samples of a micro-batch, mostStages the stages, and
// mostChunks the virtual stages of a device.
const (
	mostSamples = 128
	mostStages  = 64
	mostChunks  = 24
)

// Best returns the fastest shape of the sweeps that fits in memory. That is the shape that Run would list first, but
// Best does not predict every shape. It takes the shapes in the order of their lower bounds, and skips those whose
// bound is above the best step so far.
func Best(m *model.Model, c *cluster.Cluster, sweeps ...Sweep) (*Prediction, error) {
	r, err := line(m, c, sweeps)
	if err != nil {
		return nil, err
	}
	best := r.best(nil)
	if best == nil {
		return nil, ErrNothing
	}
	return best, nil
}

// Others holds the shapes that Rank did not predict. Each of them does not fit, or is not faster than Rank's first
// shape.
type Others struct {
	Count int         // shapes that were not tried; a schedule might refuse some of them
	fit   []candidate // those of the shapes that may fit
}

// Rank predicts the shapes with the lowest bounds: at most `most` of those that may fit, and half as many of the
// others. It adds Best's shape if that is not among them. It sorts all predictions as Run does.
func Rank(m *model.Model, c *cluster.Cluster, most int, sweeps ...Sweep) (found []*Prediction, others Others,
	err error) {
	r, err := line(m, c, sweeps)
	if err != nil {
		return nil, others, err
	}
	all := len(r.candidates)
	fit := make([]bool, all)
	each(all, func(i int) {
		a, err := lay(m, c, r.candidates[i].s, &r.known)
		fit[i] = err == nil && a.mayFit()
	})
	var first []candidate
	left := map[bool]int{true: most, false: most / 2}
	for i, one := range r.candidates {
		if left[fit[i]]--; left[fit[i]] >= 0 {
			first = append(first, one)
		} else if fit[i] {
			others.fit = append(others.fit, one)
		}
	}
	found, errs := make([]*Prediction, len(first)), make([]error, len(first))
	each(len(first), func(i int) {
		a, err := lay(m, c, first[i].s, &r.known)
		if err == nil {
			found[i], err = a.predict(m, false)
		}
		errs[i] = err
	})
	others.Count = all - len(found)
	found = slices.DeleteFunc(found, func(p *Prediction) bool { return p == nil })
	slices.SortStableFunc(found, rank)
	var best *Prediction
	if len(found) > 0 && found[0].Fits {
		best = found[0]
	}
	r.candidates = others.fit
	if better := r.best(best); better != best {
		found = slices.Insert(found, 0, better)
		others.Count--
	}
	if len(found) == 0 {
		return nil, others, cmp.Or(errors.Join(errs...), ErrNothing)
	}
	return found, others, nil
}

// queue holds shapes in ascending order of their lower bounds.
type queue struct {
	m          *model.Model
	c          *cluster.Cluster
	candidates []candidate
	known      costs
}

// candidate is a shape with a lower bound of its step.
type candidate struct {
	s     Shape
	least float64 // seconds
}

// line returns the queue of all shapes that the sweeps, the model and the schedule admit. If there is none, it returns
// the error of one shape. If possible, that is a shape that divides the batch and the devices.
func line(m *model.Model, c *cluster.Cluster, sweeps []Sweep) (*queue, error) {
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
		return nil, cmp.Or(why, ErrNothing)
	}
	r := &queue{m: m, c: c, candidates: make([]candidate, len(shapes))}
	errs := make([]error, len(shapes))
	each(len(shapes), func(i int) {
		a, err := lay(m, c, shapes[i], &r.known)
		if errs[i] = err; err == nil {
			r.candidates[i] = candidate{a.s, a.least()}
		}
	})
	for i, err := range errs {
		if err != nil {
			r.candidates[i].least = -1
		}
	}
	r.candidates = slices.DeleteFunc(r.candidates, func(a candidate) bool { return a.least < 0 })
	if len(r.candidates) == 0 {
		return nil, errs[0]
	}
	slices.SortStableFunc(r.candidates, func(a, b candidate) int { return cmp.Compare(a.least, b.least) })
	return r, nil
}

// best returns the fastest candidate that fits, or the given prediction if none is faster.
func (r *queue) best(best *Prediction) *Prediction {
	var lock sync.Mutex
	first := -1 // index of the best one in candidates
	each(len(r.candidates), func(i int) {
		lock.Lock()
		hopeless := best != nil && r.candidates[i].least > best.StepS
		lock.Unlock()
		if hopeless {
			return
		}
		a, err := lay(r.m, r.c, r.candidates[i].s, &r.known)
		if err != nil || !a.mayFit() {
			return
		}
		p, err := a.predict(r.m, false)
		if err != nil || !p.Fits {
			return
		}
		lock.Lock()
		defer lock.Unlock()
		if best == nil || p.StepS < best.StepS || p.StepS == best.StepS && i < first {
			best, first = p, i
		}
	})
	return best
}

// each calls `do` for 0 to n-1, on as many goroutines as GOMAXPROCS.
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
