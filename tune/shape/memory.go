package shape

import (
	"github.com/millrace-ml/millrace/profile/kernels"
	"github.com/millrace-ml/millrace/schedule"
)

// memory fills in the bytes that a device of each stage holds, and whether they fit.
func (out *Prediction) memory(a *laid) error {
	s, units, cuts, stages := a.s, a.units, a.cuts, a.stages
	kept := make([]float64, len(stages)) // by virtual stage: bytes held for a micro-batch in flight
	parameters := make([]float64, s.Stages)
	moment := make([]float64, s.Stages) // bytes of the largest recomputed block, by worker
	for k, st := range stages {
		if k > 0 {
			kept[k] += units[cuts[k]-1].output // the received input is held too
		}
		for _, u := range units[cuts[k]:cuts[k+1]] {
			kept[k] += u.saved
			if u.saveds > u.saved && u.block {
				moment[st.worker] = max(moment[st.worker], u.saveds)
			}
		}
		if k < len(stages)-1 && cuts[k+1] > cuts[k] {
			kept[k] -= units[cuts[k+1]-1].output // the output is freed when it is sent
		}
		parameters[st.worker] += st.parameters
	}
	limit := a.device.MemoryBytes
	if s.Tensor == 1 && a.device.Group != nil {
		limit /= int64(a.device.Group.Size)
	}
	out.Fits = true
	for w := range s.Stages {
		most, err := s.settled(1, func(micros int) (float64, error) {
			p, err := s.program(micros, stages, a.links)
			if err != nil {
				return 0, err
			}
			return moment[w] + fullest(p.Body[w], stages, kept), nil
		})
		if err != nil {
			return err
		}
		out.ActivationBytes = append(out.ActivationBytes, int64(most))
		out.MemoryBytes = append(out.MemoryBytes, int64(most+parameters[w]*s.parameterBytes()))
		out.Fits = out.Fits && (limit == 0 || out.MemoryBytes[w] <= limit)
	}
	return nil
}

// fullest returns the peak of what a list of computations holds. `kept` has, by stage, the amount for one micro-batch,
// in bytes or any other unit. The first half of a backward frees this amount, except the fraction `pending` of it,
// which the second half needs.
func fullest(list schedule.List, stages []stage, kept []float64) (most float64) {
	held := 0.0
	for _, in := range list {
		switch in.Kind {
		case schedule.F:
			held += kept[in.Stage]
		case schedule.B:
			held -= kept[in.Stage]
		case schedule.I:
			held -= (1 - stages[in.Stage].pending) * kept[in.Stage]
		case schedule.W:
			held -= stages[in.Stage].pending * kept[in.Stage]
		}
		most = max(most, held)
	}
	return most
}

// parameterBytes returns the bytes that a device keeps for each of its parameters.
func (s Shape) parameterBytes() float64 {
	e, dp := float64(kernels.ElementBytes(s.Precision)), float64(s.Replicas)
	states, gradient := 4*float64(s.States), 4.0
	if kernels.Sixteen(s.Precision) {
		states += 4
	}
	switch {
	case s.GradientBytes > 0 && (s.Shard == "none" || s.Shard == "zero1"): // the buffer that replicas sum
		gradient = float64(s.GradientBytes)
	case s.Precision == "f16":
		gradient = 2
	}
	switch s.Shard {
	case "zero1":
		return e + gradient + states/dp
	case "zero2":
		return e + (gradient+states)/dp
	case "zero3":
		return (e + gradient + states) / dp
	}
	return e + gradient + states
}
