package run

import (
	"bytes"
	"runtime"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/stage"
)

// averaged computes elastic averaging without a Program, on plain slices. One worker has a twin of the undivided
// model for each pipeline, and computes iteration by iteration and pipeline by pipeline.
type averaged struct {
	c     Config
	dev   engine.Device
	x     []*twin
	z     [][]float64 // the reference: the numbers of each parameter, then of each buffer
	batch int         // the next batch of the data
	later []leg       // iterations after those of the Config
	// sees returns the version of the reference that a pipeline's update of a layer sees. The version is the number of
	// updates in the reference; past[n] is the reference after n updates. If sees is nil, every update sees the newest
	// reference.
	sees func(layer, pipeline, step int) int
	past [][][]float64
}

// leg is a number of iterations with another number of pipelines than before.
type leg struct {
	elastic *plan.Elastic
	steps   int
}

func averagedWeights(t testing.TB, c Config, later ...leg) map[string]process.Weight {
	t.Helper()
	return (&averaged{c: c, later: later}).weights(t)
}

func (a *averaged) weights(t testing.TB) map[string]process.Weight {
	t.Helper()
	var out map[string]process.Weight
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- crash.Guard(func() (err error) {
			out, err = a.run()
			return err
		})
	}()
	if err := <-done; err != nil {
		t.Fatal("twin: ", err)
	}
	return out
}

func (a *averaged) run() (map[string]process.Weight, error) {
	c := a.c
	var err error
	if a.dev, err = c.Engine.Open(0, 1); err != nil {
		return nil, err
	}
	defer a.dev.Close()
	defer func() {
		for _, x := range a.x {
			x.close()
		}
	}()
	if err := a.open(c.Plan.Together(), 0); err != nil {
		return nil, err
	}
	if a.z, err = a.copies(0); err != nil {
		return nil, err
	}
	done := 0
	for _, l := range append([]leg{{c.Plan.Elastic, c.Train.Steps}}, a.later...) {
		if done > 0 {
			if err := a.regroup(l.elastic.Pipelines, done); err != nil {
				return nil, err
			}
		}
		for range l.steps {
			if err := a.iteration(done, l.elastic); err != nil {
				return nil, err
			}
			done++
		}
	}
	out := map[string]process.Weight{}
	for i, v := range a.tensors(0) {
		out[v.Name] = process.Weight{DType: c.Engine.Float(), Data: bytes.Clone(engine.Bytes(a.z[i]))}
	}
	return out, nil
}

// open makes this many pipelines, all with the initial weights. Each twin has unlimited steps, because at its last step
// a twin also makes updates that are not due.
func (a *averaged) open(pipelines, before int) error {
	c := undivided(a.c)
	c.Plan.Stages[0].Devices = []int{0}
	if a.c.Plan.Boundary.Packs() { // received values differ from the sent ones, so the cuts matter
		c.Plan.Stages = a.c.Plan.Stages
	}
	c.Train.Steps = 1 << 20
	for range pipelines {
		x := newTwin(c, func(int, int, int, bool) int { return 0 })
		x.before = before
		a.x = append(a.x, x)
		if err := x.open(a.dev); err != nil {
			return err
		}
	}
	return nil
}

// regroup continues with another number of pipelines. The new pipelines have the weights and buffers of the reference,
// and the mean of the earlier pipelines' states.
func (a *averaged) regroup(pipelines, done int) error {
	var sums [][]float64 // by parameter and state
	before := a.x
	for p := range before {
		states, err := a.states(p)
		if err != nil {
			return err
		}
		if sums == nil {
			sums = make([][]float64, len(states))
		}
		for i, s := range states {
			if sums[i] == nil {
				sums[i] = make([]float64, len(s))
			}
			for k, v := range s {
				sums[i][k] += v
			}
		}
		defer before[p].close()
	}
	a.x = nil
	if err := a.open(pipelines, done); err != nil {
		return err
	}
	for p, x := range a.x {
		views, err := a.views(p)
		if err != nil {
			return err
		}
		for i, v := range views {
			copy(v, a.z[i])
		}
		states, err := a.states(p)
		if err != nil {
			return err
		}
		for i, s := range states {
			for k := range s {
				s[k] = sums[i][k] / float64(len(before))
			}
		}
		if err := x.restart(); err != nil {
			return err
		}
	}
	return nil
}

// iteration trains every pipeline on a batch, and then moves the reference. A single pipeline trains plainly, and is
// its own reference.
func (a *averaged) iteration(t int, e *plan.Elastic) error {
	n, alpha := len(a.x), e.Alpha
	if a.sees != nil {
		var z [][]float64
		for _, one := range a.z {
			z = append(z, slices.Clone(one))
		}
		a.past = append(a.past, z)
	}
	var steps [][][]float64
	for p, pipeline := range a.x {
		x, err := a.copies(p)
		if err != nil {
			return err
		}
		batch := a.batch
		a.batch++
		pipeline.batch = func(int) int { return batch }
		if err := pipeline.minibatch(t); err != nil {
			return err
		}
		stepped, err := a.views(p)
		if err != nil {
			return err
		}
		if n == 1 {
			if a.z, err = a.copies(0); err != nil {
				return err
			}
			return pipeline.restart()
		}
		var u [][]float64
		for i := range stepped {
			if i >= len(x)-a.buffers() {
				u = append(u, slices.Clone(stepped[i]))
				continue
			}
			d, z := make([]float64, len(x[i])), a.z[i]
			if a.sees != nil {
				z = a.past[a.sees(pipeline.stages[0][0].Params.Learned[i].Layer, p, t)][i]
			}
			for k := range d {
				d[k] = stepped[i][k] - x[i][k]
				if e.Order == plan.UpdateFirst {
					stepped[i][k] = stepped[i][k]*(1-alpha) + alpha*z[k]
				} else {
					stepped[i][k] = x[i][k]*(1-alpha) + alpha*z[k] + d[k]
				}
			}
			u = append(u, d)
		}
		steps = append(steps, u)
		if err := pipeline.restart(); err != nil {
			return err
		}
	}
	mean := 1 / float64(n)
	for i := range a.z {
		for k := range a.z[i] {
			sum := steps[0][i][k]
			for _, u := range steps[1:] {
				sum += u[i][k]
			}
			if i < len(a.z)-a.buffers() {
				a.z[i][k] += mean * sum
			} else {
				a.z[i][k] = sum * mean
			}
		}
	}
	return nil
}

// buffers returns the number of a pipeline's buffers, which are the last of its tensors.
func (a *averaged) buffers() (n int) {
	for _, s := range a.x[0].stages {
		n += len(s[0].Statistics.Vectors())
	}
	return n
}

// tensors returns the parameters of a pipeline, then its buffers.
func (a *averaged) tensors(p int) (all []stage.Vector) {
	var buffers []stage.Vector
	for _, s := range a.x[p].stages {
		for _, param := range s[0].Params.Learned {
			all = append(all, stage.Vector{Name: param.Name, Tensor: param.Value})
		}
		buffers = append(buffers, s[0].Statistics.Vectors()...)
	}
	return append(all, buffers...)
}

// views returns the numbers of a pipeline's tensors. The result shares the tensors' memory.
func (a *averaged) views(p int) ([][]float64, error) {
	var all [][]float64
	for _, t := range a.tensors(p) {
		data, err := a.dev.(viewer).View(t.Tensor)
		if err != nil {
			return nil, err
		}
		all = append(all, engine.Numbers[float64](data))
	}
	return all, nil
}

func (a *averaged) copies(p int) ([][]float64, error) {
	views, err := a.views(p)
	var all [][]float64
	for _, v := range views {
		all = append(all, slices.Clone(v))
	}
	return all, err
}

// states returns the numbers of a pipeline's optimizer states. The result shares their memory.
func (a *averaged) states(p int) ([][]float64, error) {
	var all [][]float64
	for _, s := range a.x[p].stages {
		for _, param := range s[0].Params.Learned {
			for _, t := range param.State {
				data, err := a.dev.(viewer).View(t)
				if err != nil {
					return nil, err
				}
				all = append(all, engine.Numbers[float64](data))
			}
		}
	}
	return all, nil
}
