package shape

import (
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
)

// Sensitivity is what a step takes where an assumption is a tenth worse.
type Sensitivity struct {
	Assumption string  `json:"assumption"`
	StepS      float64 `json:"step_s"` // of the shape that was best
	Fits       bool    `json:"fits"`   // the shape that was best
	// Best is the shape that is best then, and BestS its step; nil: the same one.
	Best  *Shape  `json:"best,omitempty"`
	BestS float64 `json:"best_step_s,omitempty"`
}

// worse is the part of a rate that is left of it where it is a tenth worse.
const worse = 0.9

// assumption changes a copied cluster's device type, and the cluster.
type assumption struct {
	what   string
	change func(t *cluster.DeviceType, c *cluster.Cluster)
}

// assumptions are those that a sweep's choice may hang on.
func assumptions(c *cluster.Cluster, s Shape) []assumption {
	limit := func(kinds ...string) func(t *cluster.DeviceType, c *cluster.Cluster) {
		return func(t *cluster.DeviceType, _ *cluster.Cluster) {
			for _, kind := range kinds {
				r := t.Kernels.Rate(kind)
				r.Limit *= worse
				t.Kernels.Rates[kind] = r
			}
		}
	}
	slower := func(level int) func(t *cluster.DeviceType, c *cluster.Cluster) {
		return func(_ *cluster.DeviceType, c *cluster.Cluster) {
			c.Levels[level].BandwidthBytesPerSecond *= worse
			c.Levels[level].CollectiveBandwidthBytesPerSecond *= worse
		}
	}
	all := []assumption{
		{"products reach a tenth less of the peak", limit(cluster.RateMatmul, cluster.RateFP8)},
		{"attention reaches a tenth less of the peak", limit(cluster.RateAttention)},
		{"memory's bandwidth is a tenth less", limit(cluster.RateMemory)},
		{"half of the peak needs a tenth more width and rows", func(t *cluster.DeviceType, _ *cluster.Cluster) {
			for kind, r := range t.Kernels.Rates {
				r.HalfWidth, r.HalfRows = r.HalfWidth/worse, r.HalfRows/worse
				t.Kernels.Rates[kind] = r
			}
		}},
		{"launches take a tenth longer", func(t *cluster.DeviceType, _ *cluster.Cluster) {
			t.Kernels.LaunchS, t.Kernels.LayerS = t.Kernels.LaunchS/worse, t.Kernels.LayerS/worse
		}},
		{"a tenth less of collectives hides", func(t *cluster.DeviceType, _ *cluster.Cluster) {
			t.Kernels.Overlap *= worse
		}},
		{fmt.Sprintf("links of level %s are a tenth slower", c.Levels[0].Name), slower(0)},
	}
	if last := len(c.Levels) - 1; last > 0 && s.Devices() > c.Levels[0].Size {
		all = append(all, assumption{fmt.Sprintf("links of level %s are a tenth slower", c.Levels[last].Name), slower(last)})
	}
	if c.DeviceTypes[c.Devices[0]].MemoryBytes > 0 {
		all = append(all, assumption{"devices have a tenth less memory", func(t *cluster.DeviceType, _ *cluster.Cluster) {
			t.MemoryBytes = int64(worse * float64(t.MemoryBytes))
		}})
	}
	return all
}

// Sensitivities are the best shape's step with each assumption a tenth worse, alone. Each says which of the shapes
// that a sweep ranked is the best one then. No shape becomes faster by that, so only those are predicted again that
// were faster than the best shape now is.
func Sensitivities(m *model.Model, c *cluster.Cluster, found []*Prediction) ([]Sensitivity, error) {
	best := found[0]
	var out []Sensitivity
	for _, a := range assumptions(c, best.Shape) {
		other := c.Copied()
		t := other.DeviceTypes[c.Devices[0]]
		a.change(&t, other)
		other.DeviceTypes[c.Devices[0]] = t
		then, err := Predict(m, other, best.Shape)
		if err != nil {
			return nil, err
		}
		one := Sensitivity{Assumption: a.what, StepS: then.StepS, Fits: then.Fits}
		for _, rival := range found[1:] {
			if !rival.Fits || then.Fits && rival.StepS >= then.StepS {
				break // they are ranked
			}
			p, err := Predict(m, other, rival.Shape)
			if err != nil {
				return nil, err
			}
			if p.Fits && (!then.Fits || p.StepS < then.StepS) {
				then, one.Best, one.BestS = p, &p.Shape, p.StepS
			}
		}
		out = append(out, one)
	}
	return out, nil
}
