package shape

import (
	"fmt"
	"sync"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/schedule/family"
)

// laid is a shape whose stages have been placed on a cluster's devices, with their costs.
type laid struct {
	s      Shape
	device cluster.DeviceType
	units  []unit
	cuts   []int
	stages []stage
	links  *links
}

func lay(m *model.Model, c *cluster.Cluster, s Shape, known *costs) (*laid, error) {
	s = s.filled()
	if err := s.check(c); err != nil {
		return nil, err
	}
	a := &laid{s: s, device: s.Device(c)}
	var err error
	if a.units, err = known.units(m, c, a); err != nil {
		return nil, err
	}
	if a.cuts, err = s.place(a.units); err != nil {
		return nil, err
	}
	a.links = &links{c: c, s: s, overlap: a.device.Kernels.Overlap}
	a.stages = s.stages(a.units, a.cuts, a.links)
	return a, nil
}

// costs caches the units of one model on one cluster. The key leaves out stages, chunks and replicas because units do
// not depend on them. A nil *costs caches nothing.
type costs struct {
	lock  sync.Mutex
	known map[string][]unit
}

func (k *costs) units(m *model.Model, c *cluster.Cluster, a *laid) ([]unit, error) {
	if k == nil {
		return a.s.units(m, c.Devices[0], a.device)
	}
	key := fmt.Sprint(a.s.MicroBatch, a.s.Tensor, a.s.SequenceParallel, a.s.Recompute, a.s.Precision, a.s.AsyncTensor)
	k.lock.Lock()
	units, ok := k.known[key]
	k.lock.Unlock()
	if ok {
		return units, nil
	}
	units, err := a.s.units(m, c.Devices[0], a.device)
	if err != nil {
		return nil, err
	}
	k.lock.Lock()
	defer k.lock.Unlock()
	if k.known == nil {
		k.known = map[string][]unit{}
	}
	k.known[key] = units
	return units, nil
}

// least returns a lower bound on the step time for any order of computations. The pipeline takes at least the maximum,
// over workers, of the worker's own work plus the forwards and backwards of the stages before its first one. That
// covers the whole bubble of 1F1B. The work after the pipeline is added. With split backwards or NoFlush, workers wait
// for less, so less is added.
func (a *laid) least() float64 {
	s := a.s
	f, err := family.Named(s.Schedule)
	halves := err != nil || f.Halves
	most, front := 0.0, 0.0
	seen := make([]bool, s.Stages)
	of := make([]float64, s.Stages)
	for _, st := range a.stages {
		of[st.worker] += float64(s.MicroBatches()) * (st.forward + st.input + st.weight)
	}
	for _, st := range a.stages {
		if !seen[st.worker] {
			seen[st.worker] = true
			most = max(most, front+of[st.worker])
		}
		if !s.NoFlush && s.Stages > 1 {
			if front += st.forward; !halves {
				front += st.input + st.weight
			}
		}
	}
	gradients, update := s.flush(a.stages, a.links, a.device, false)
	return (most + gradients + update + a.device.Kernels.StepS) * (1 - rounding)
}

// rounding is the relative difference that another order of summation may cause.
const rounding = 1e-9

// mayFit reports whether a shape may fit in memory, as far as this is known without simulation.
func (a *laid) mayFit() bool {
	if a.s.Room > 0 {
		return true
	}
	var out Prediction
	return out.memory(a) == nil && out.Fits
}
