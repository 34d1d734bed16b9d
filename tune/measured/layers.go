package measured

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/kernels"
	"github.com/millrace-ml/millrace/tune/calibrate"
)

// least is a fraction of the whole forward or backward. The time of a layer that takes less than that is left out.
const least = 0.01

// Layers reads the times of a profile of the model on the cluster's device.
func Layers(file string, p *profile.Profile, m *model.Model, c *cluster.Cluster) (*Set, error) {
	device, err := deviceOf(file, p, m, c)
	if err != nil {
		return nil, err
	}
	sizes := p.Sizes(device)
	if len(sizes) == 0 {
		return nil, fmt.Errorf("measured: %s has no size of micro-batches that all layers were measured with", file)
	}
	o := kernels.Options{Precision: p.Precision}
	out := &Set{}
	left, kept := map[string]bool{}, map[string]bool{}
	for _, size := range sizes {
		costs, _, err := p.At(device, size)
		if err != nil {
			return nil, fmt.Errorf("measured: %s: %w", file, err)
		}
		kinds, err := alike(m, size, c, o)
		if err != nil {
			return nil, fmt.Errorf("measured: %s: %w", file, err)
		}
		forwardS, backwardS := 0.0, 0.0
		for i := range costs {
			forwardS, backwardS = forwardS+costs[i].ForwardS, backwardS+costs[i].BackwardS
		}
		for _, layers := range kinds {
			first := m.Layers[layers[0]].Name
			group := fmt.Sprintf("%s on %s, %d", p.ModelID, device, size) // one group: all files of a model, device and size
			if len(sizes) == 1 {
				group = fmt.Sprintf("%s on %s, %s", p.ModelID, device, first)
			}
			for _, pass := range passes(m, layers[0], size, o) {
				var took []float64
				all := forwardS
				if pass.backward {
					all = backwardS
				}
				for _, i := range layers {
					if took = append(took, costs[i].ForwardS); pass.backward {
						took[len(took)-1] = costs[i].BackwardS
					}
				}
				median := stats.Median(took)
				if median <= 0 || median < least*all {
					left[first] = left[first] || median > 0
					continue
				}
				kept[first+pass.name] = true
				name := fmt.Sprintf("%s: %s of %s", file, pass.name, first)
				if n := len(layers) - 1; n > 0 {
					name += fmt.Sprintf(" and %d like it", n)
				}
				out.Observations = append(out.Observations, calibrate.Observation{Measured: median, Group: group,
					Name: fmt.Sprintf("%s, micro-batch of %d", name, size), Predict: pass.predict})
			}
		}
	}
	if len(left) > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("of %s, and layers like them, times are left out that are under "+
			"%.0f %% of their pass", strings.Join(slices.Sorted(maps.Keys(left)), ", "), 100*least))
	}
	if len(out.Observations) == 0 {
		return nil, fmt.Errorf("measured: %s has no time over 0", file)
	}
	out.Candidates = func(*cluster.Cluster) []calibrate.Candidate { return moreSizes(p.Model, m, sizes, kept, o) }
	return out, nil
}

// moreSizes returns further micro-batch sizes to measure, with the forwards and backwards of layers that are kept.
func moreSizes(name string, m *model.Model, sizes []int, kept map[string]bool, o kernels.Options) (
	all []calibrate.Candidate,
) {
	for n := 1; n <= 4*slices.Max(sizes); n *= 2 {
		if slices.Contains(sizes, n) {
			continue
		}
		more := calibrate.Candidate{Name: fmt.Sprintf("millrace profile %s with --sizes %d", name, n)}
		for i := range m.Layers {
			for _, pass := range passes(m, i, n, o) {
				if kept[m.Layers[i].Name+pass.name] {
					more.Times = append(more.Times, pass.predict)
				}
			}
		}
		all = append(all, more)
	}
	return all
}

// deviceOf returns the device type that a profile was measured on. It refuses a profile of another model or of computed
// costs, and one for a cluster of tensor-parallel groups.
func deviceOf(file string, p *profile.Profile, m *model.Model, c *cluster.Cluster) (string, error) {
	if p.ModelID != m.ID() || len(p.Layers) != len(m.Layers) {
		return "", fmt.Errorf("measured: %s is of model %s, %s, and the model given is %s, %s: name the one that was "+
			"profiled with --model, and its settings with --set", file, p.Model, p.ModelID, m.Name, m.ID())
	}
	device := c.Devices[0]
	if types := p.DeviceTypes(); !slices.Contains(types, device) {
		if len(types) > 1 {
			return "", fmt.Errorf("measured: %s has times of device types %s; the cluster's is %s: call one of them that",
				file, strings.Join(types, ", "), device)
		}
		device = types[0]
	}
	if p.On(device).Engine == "" {
		return "", fmt.Errorf("measured: %s has costs of %s that are computed (%s): give what was measured, by millrace "+
			"profile on such a device", file, device, cmp.Or(p.On(device).Source, p.Source))
	}
	if c.DeviceTypes[c.Devices[0]].Group != nil {
		return "", fmt.Errorf("measured: device type %s is a tensor-parallel group, and %s was measured on one device: "+
			"leave tensor out of the cluster file", c.Devices[0], file)
	}
	return device, nil
}

// alike groups layers that have equal predictions and are of one kind. Their measured times differ only by measurement
// errors.
func alike(m *model.Model, size int, c *cluster.Cluster, o kernels.Options) (out [][]int, err error) {
	type key struct {
		kind string
		cost kernels.Cost
	}
	at := map[key]int{}
	for i := range m.Layers {
		cost, err := kernels.Of(m, i, size, c.Devices[0], c.DeviceTypes[c.Devices[0]], o)
		if err != nil {
			return nil, err
		}
		of := key{m.Layers[i].Kind, cost}
		k, ok := at[of]
		if !ok {
			k = len(out)
			at[of], out = k, append(out, nil)
		}
		out[k] = append(out[k], i)
	}
	return out, nil
}

// pass is a layer's forward or backward of a micro-batch, with its prediction.
type pass struct {
	name     string
	backward bool
	predict  calibrate.Predictor
}

// passes returns the forward and the backward of layer i.
func passes(m *model.Model, i, size int, o kernels.Options) []pass {
	of := func(seconds func(k kernels.Cost) float64) calibrate.Predictor {
		return func(c *cluster.Cluster) (float64, error) {
			k, err := kernels.Of(m, i, size, c.Devices[0], c.DeviceTypes[c.Devices[0]], o)
			return seconds(k), err
		}
	}
	return []pass{
		{"forward", false, of(func(k kernels.Cost) float64 { return k.ForwardS })},
		{"backward", true, of(func(k kernels.Cost) float64 { return k.InputS + k.WeightS })},
	}
}
