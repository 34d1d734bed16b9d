package timing

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// Profile makes a model's profile from the Record. It has the costs at those of the given sizes that were measured, and
// the times of updates by one optimizer. It refuses a Record that has none of the sizes, or no updates by that
// optimizer. The profile has no Transfer.
func (r *Record) Profile(m *model.Model, sizes []int, optimizer string) (*profile.Profile, error) {
	if m.ID() != r.ModelID {
		return nil, fmt.Errorf("timing: a record of model %s (%s) says nothing of %s (%s)", r.Model, r.ModelID, m.Name,
			m.ID())
	}
	p := profile.Describe(m)
	p.Source, p.Engine = "measured", r.Engine
	p.ThreadsPerWorker, p.Concurrency = r.Threads, r.Concurrency
	all := r.paced()
	var have []int
	for _, size := range sizes {
		visits := all[size]
		if len(visits) == 0 {
			continue
		}
		if n := len(visits[0].Layers); n != len(m.Layers) {
			return nil, fmt.Errorf("timing: the record of %s has %d layers, and the model has %d; remove it", m.Name, n,
				len(m.Layers))
		}
		have = append(have, size)
		bytes := bytesOf(visits)
		inputs := pendingInputs(p.Layers, bytes)
		for l := range p.Layers {
			c := costOf(visits, l, bytes[l])
			c.Device, c.MicroBatch, c.PendingInputBytes = r.Device, size, new(inputs[l])
			p.Layers[l].Costs = append(p.Layers[l].Costs, c)
		}
	}
	u := r.updates(optimizer)
	if len(have) == 0 || u == nil {
		return nil, fmt.Errorf("timing: %s has not been measured at micro-batches %v yet", m.Name, sizes)
	}
	p.Optimizer, p.OptimizerStates = u.Kind, u.States
	for l, t := range u.Layers {
		p.Layers[l].UpdateTimes = t
	}
	p.PaceSpread = r.paceSpread()
	if below, above, n := r.passSpread(have); n >= fewestPasses {
		p.PassSpread = &profile.PassSpread{Below: below, Above: above, Passes: n}
	}
	return p, p.Validate()
}

// Check refuses a record that is so damaged that no profile of the model can be made from it.
func (r *Record) Check(m *model.Model) error {
	layers := len(m.Layers)
	r.each(func(_, _ int, v *Visit) {
		if len(v.Layers) != len(m.Layers) {
			layers = len(v.Layers)
		}
	})
	sizes, _ := r.Sizes()
	for _, size := range sizes {
		if slices.ContainsFunc(r.visits(size)[0].Layers, func(l LayerVisit) bool { return l.Bytes == nil }) {
			return fmt.Errorf("timing: the record of %s does not say what layers hold at micro-batch %d", m.Name, size)
		}
	}
	for _, u := range r.Updates {
		if len(u.Layers) != len(m.Layers) {
			layers = len(u.Layers)
		} else if layers == len(m.Layers) && len(sizes) > 0 {
			if _, err := r.Profile(m, sizes, u.Settings); err != nil {
				return err
			}
		}
	}
	if layers != len(m.Layers) {
		return fmt.Errorf("timing: the record of %s has %d layers, and the model has %d", m.Name, layers, len(m.Layers))
	}
	return nil
}

// costOf returns one layer's cost at one size: medians over visits, at the machine's usual pace.
func costOf(visits []pacedVisit, l int, b LayerBytes) profile.Cost {
	median := func(of func(v *LayerVisit) *float64) *float64 {
		var times []float64
		for _, v := range visits {
			if s := of(&v.Layers[l]); s != nil {
				times = append(times, *s/v.pace)
			}
		}
		if len(times) == 0 {
			return nil
		}
		return new(stats.Median(times))
	}
	c := profile.Cost{
		ForwardS:       *median(func(v *LayerVisit) *float64 { return &v.ForwardS }),
		BackwardS:      *median(func(v *LayerVisit) *float64 { return &v.BackwardS }),
		FeedS:          *median(func(v *LayerVisit) *float64 { return &v.FeedS }),
		BackwardInputS: median(func(v *LayerVisit) *float64 { return v.BackwardInputS }),
		BareForwardS:   median(func(v *LayerVisit) *float64 { return v.BareForwardS }),
		OutputBytes:    b.Output, SavedBytes: b.Saved,
		ForwardPeakBytes: b.ForwardPeak, BackwardPeakBytes: b.BackwardPeak, FirstBackwardPeakBytes: b.FirstBackwardPeak,
		PendingBytes: new(b.Pending), HalvesPeakBytes: new(b.HalvesPeaks),
		WorkspaceBytes: max(0, b.ForwardPeak-b.Saved, b.BackwardPeak),
	}
	c.BackwardWeightS = median(func(v *LayerVisit) *float64 { return v.BackwardWeightS })
	c.AgainS = median(func(v *LayerVisit) *float64 { return v.AgainS })
	both := make([]float64, len(visits))
	for i, v := range visits {
		both[i] = (v.Layers[l].ForwardS + v.Layers[l].BackwardS) / v.pace
	}
	if middle := stats.Median(both); len(both) > 3 && middle > 0 {
		lower, upper := stats.Quartiles(both)
		c.Spread = (upper - lower) / middle
	}
	return c
}

// bytesOf returns the bytes of each layer from the visits to one size: the latest values of the bytes held, and the
// highest peaks.
func bytesOf(visits []pacedVisit) []LayerBytes {
	out := make([]LayerBytes, len(visits[0].Layers))
	for _, v := range visits {
		for l := range v.Layers {
			b := v.Layers[l].Bytes
			if b == nil {
				continue
			}
			o := &out[l]
			o.Output, o.Saved, o.Pending, o.InputLeaves = b.Output, b.Saved, b.Pending, b.InputLeaves
			o.ForwardPeak, o.BackwardPeak = max(o.ForwardPeak, b.ForwardPeak), max(o.BackwardPeak, b.BackwardPeak)
			o.FirstBackwardPeak = max(o.FirstBackwardPeak, b.FirstBackwardPeak)
			h := b.HalvesPeaks
			o.HalvesPeaks = profile.HalvesPeaks{Input: max(o.HalvesPeaks.Input, h.Input),
				FirstInput: max(o.HalvesPeaks.FirstInput, h.FirstInput), Weight: max(o.HalvesPeaks.Weight, h.Weight),
				FirstWeight: max(o.HalvesPeaks.FirstWeight, h.FirstWeight)}
		}
	}
	return out
}

// pendingInputs returns, for each layer, the part of PendingBytes that is the layer's input. It compares the change of
// memory that was measured in the input half of the layer's backward with the change that follows from four rules. The
// result is their difference. First, what the forward saved is freed, except an input that the weight half of a later
// layer still needs. Second, the gradient of the output is freed. Third, gradients of the outputs that the layer reads
// are allocated, once each. Fourth, what the layer's own weight half needs is kept.
func pendingInputs(layers []profile.Layer, bytes []LayerBytes) []int64 {
	inputs, kept, made := make([]int64, len(layers)), make([]int64, len(layers)), make([]bool, len(layers))
	for l := len(layers) - 1; l >= 0; l-- {
		b := &bytes[l]
		inputs[l] = kept[l] - b.Saved - b.Output + b.Pending - b.InputLeaves
		nearest := -1
		for _, from := range layers[l].From {
			if nearest = max(nearest, from); from >= 0 && !made[from] && !layers[from].NoGradient {
				made[from] = true
				inputs[l] += bytes[from].Output
			}
		}
		inputs[l] = max(0, inputs[l])
		if nearest >= 0 {
			kept[nearest] += inputs[l]
		}
	}
	return inputs
}
