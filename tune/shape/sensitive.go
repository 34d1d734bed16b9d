package shape

import (
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
)

// Sensitivity is a step's time with one assumption a tenth worse.
type Sensitivity struct {
	Assumption string  `json:"assumption"`
	StepS      float64 `json:"step_s"` // of the original best shape
	Fits       bool    `json:"fits"`   // whether the original best shape fits
	// Best is the best shape under the changed assumption, and BestS its step. nil means that no other shape is better
	// than the original best one.
	Best  *Shape  `json:"best,omitempty"`
	BestS float64 `json:"best_step_s,omitempty"`
}

// worse is the factor that makes a rate a tenth worse.
const worse = 0.9

// assumption changes a copied cluster: its device types or its links.
type assumption struct {
	what   string
	device func(t *cluster.DeviceType)
	links  func(c *cluster.Cluster)
}

// made returns a copy of a cluster with the changed assumption.
func (a assumption) made(c *cluster.Cluster) *cluster.Cluster {
	other := c.Copied()
	if a.links != nil {
		a.links(other)
		return other
	}
	for name, t := range other.DeviceTypes {
		a.device(&t)
		other.DeviceTypes[name] = t
	}
	return other
}

// assumptions lists the assumptions that a plan for `used` devices may depend on.
func assumptions(c *cluster.Cluster, used int) []assumption {
	all := ofKernels()
	if c.DeviceTypes[c.Devices[0]].Kernels == nil {
		all = []assumption{
			{what: "devices compute a tenth less", device: func(t *cluster.DeviceType) { t.PeakFLOPS *= worse }},
			{what: "memory's bandwidth is a tenth less",
				device: func(t *cluster.DeviceType) { t.MemoryBandwidthBytesPerSecond *= worse }},
		}
	}
	slower := func(level int) assumption {
		return assumption{what: fmt.Sprintf("links of level %s are a tenth slower", c.Levels[level].Name),
			links: func(c *cluster.Cluster) { slow(c, level) }}
	}
	all = append(all, slower(0))
	if last := len(c.Levels) - 1; last > 0 && used > c.Levels[0].Size {
		all = append(all, slower(last))
	}
	if c.DeviceTypes[c.Devices[0]].MemoryBytes > 0 {
		all = append(all, assumption{what: "devices have a tenth less memory", device: func(t *cluster.DeviceType) {
			t.MemoryBytes = int64(worse * float64(t.MemoryBytes))
		}})
	}
	return all
}

// ofKernels lists the assumptions about devices with kernels.
func ofKernels() []assumption {
	kernels := func(change func(k *cluster.Kernels)) func(t *cluster.DeviceType) {
		return func(t *cluster.DeviceType) {
			if t.Kernels != nil {
				change(t.Kernels)
			}
		}
	}
	limit := func(kinds ...string) func(t *cluster.DeviceType) {
		return kernels(func(k *cluster.Kernels) {
			for _, kind := range kinds {
				r := k.Rate(kind)
				r.Limit *= worse
				k.Rates[kind] = r
			}
		})
	}
	return []assumption{
		{what: "products reach a tenth less of the peak", device: limit(cluster.RateMatmul, cluster.RateFP8)},
		{what: "attention reaches a tenth less of the peak", device: limit(cluster.RateAttention)},
		{what: "memory's bandwidth is a tenth less", device: limit(cluster.RateMemory)},
		{what: "half of the peak needs a tenth more width and rows", device: kernels(func(k *cluster.Kernels) {
			for kind, r := range k.Rates {
				r.HalfWidth, r.HalfRows = r.HalfWidth/worse, r.HalfRows/worse
				k.Rates[kind] = r
			}
		})},
		{what: "launches take a tenth longer", device: kernels(func(k *cluster.Kernels) {
			k.LaunchS, k.LayerS = k.LaunchS/worse, k.LayerS/worse
		})},
		{what: "a tenth less of collectives hides", device: kernels(func(k *cluster.Kernels) { k.Overlap *= worse })},
	}
}

// slow makes a level's links a tenth slower. At the innermost level it also slows the links inside tensor-parallel
// groups.
func slow(c *cluster.Cluster, level int) {
	c.Levels[level].BandwidthBytesPerSecond *= worse
	c.Levels[level].CollectiveBandwidthBytesPerSecond *= worse
	if level > 0 {
		return
	}
	for name, t := range c.DeviceTypes {
		if t.Group != nil {
			group := *t.Group
			group.BandwidthBytesPerSecond *= worse
			t.Group = &group
			c.DeviceTypes[name] = t
		}
	}
}

// Sensitivities predicts the best shape's step with each assumption a tenth worse, one at a time. For each it also
// names the shape that is then the best, of those in `found` and those that Rank left out. No shape gets faster under a
// worse assumption. So it predicts another shape only if the shape's time or bound before the change is below the best
// shape's time after it.
func Sensitivities(m *model.Model, c *cluster.Cluster, found []*Prediction, others Others) ([]Sensitivity, error) {
	best := found[0]
	var rivals []candidate
	for _, p := range found[1:] {
		if p.Fits {
			rivals = append(rivals, candidate{p.Shape, p.StepS})
		}
	}
	rivals = append(rivals, others.fit...)
	var out []Sensitivity
	for _, a := range assumptions(c, best.Shape.Devices()) {
		other := a.made(c)
		then, err := Predict(m, other, best.Shape)
		if err != nil {
			return nil, err
		}
		one := Sensitivity{Assumption: a.what, StepS: then.StepS, Fits: then.Fits}
		var known *Prediction
		if then.Fits {
			known = then
		}
		r := queue{m: m, c: other, candidates: rivals}
		if best := r.best(known); best != known {
			one.Best, one.BestS = &best.Shape, best.StepS
		}
		out = append(out, one)
	}
	return out, nil
}
