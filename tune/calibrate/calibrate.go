// Package calibrate fits a described device to what was measured on one.
//
// In: a cluster of one device type with kernels, Observations (a time, and how a cluster predicts it), names of
// what may change. Out: a Fit: the cluster with fitted numbers, the error that is left, and the error on
// observations that were held out. Refused: names of nothing that can be fitted, no observations, predictions
// that fail.
//
// A fit minimises the sum of squares of log(predicted/measured)/Noise, and of log(number/its first value)/doubt
// for each number that it changes: what observations do not say stays as it was described. That is least
// squares with a normal prior (ridge regression), by Gauss and Newton's iteration with Levenberg's damping.
// Held out means: each observation (or group of them) in turn is left out, the others are fitted, and it is
// predicted by that fit.
package calibrate

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/registry"
)

// Noise is what a fit believes of measurements: they are off by a twentieth.
const Noise = 0.05

// doubt is what a fit believes of a described number: by what part it is off, as a logarithm. Data sheets and
// published products say limits and bandwidths; sizes at which half is reached, and fixed times, are guessed within a
// factor of e.
func doubt(name string) float64 {
	switch {
	case strings.HasSuffix(name, "half_width"), strings.HasSuffix(name, "half_rows"), name == "launch", name == "layer",
		name == "step":
		return 1
	case name == "overlap":
		return 0.15
	}
	return 0.25
}

// Observation is something measured.
type Observation struct {
	Name     string
	Group    string // observations that are held out together; "" is alone
	Measured float64
	Predict  func(c *cluster.Cluster) (float64, error)
}

// Number is one that a fit may change.
type Number struct {
	Name          string
	Before, After float64
	Least, Most   float64
	// Told is how much of its uncertainty the observations took away, 0 to 1.
	Told float64
}

// Fit is a cluster after calibration.
type Fit struct {
	Cluster  *cluster.Cluster
	Numbers  []Number
	Before   float64   // mean relative error of the observations by the cluster as it was
	After    float64   // by the fitted one, of the observations that it was fitted to
	HeldOut  float64   // of each by a fit without it; NaN where there is one observation, or one group
	Residual []float64 // predicted over measured, by observation, by the fitted one
}

// numbers are what can be fitted, with what they may be.
var numbers = map[string]struct {
	least, most float64
	of          func(t *cluster.DeviceType, c *cluster.Cluster) *float64
}{
	"overlap": {0.01, 1, func(t *cluster.DeviceType, _ *cluster.Cluster) *float64 { return &t.Kernels.Overlap }},
	"launch":  {1e-8, 1e-3, func(t *cluster.DeviceType, _ *cluster.Cluster) *float64 { return &t.Kernels.LaunchS }},
	"layer":   {1e-8, 1e-2, func(t *cluster.DeviceType, _ *cluster.Cluster) *float64 { return &t.Kernels.LayerS }},
	"step":    {1e-6, 10, func(t *cluster.DeviceType, _ *cluster.Cluster) *float64 { return &t.Kernels.StepS }},
	"inside": {1e6, 1e13, func(_ *cluster.DeviceType, c *cluster.Cluster) *float64 {
		return &c.Levels[0].CollectiveBandwidthBytesPerSecond
	}},
	"outside": {1e6, 1e13, func(_ *cluster.DeviceType, c *cluster.Cluster) *float64 {
		return &c.Levels[len(c.Levels)-1].CollectiveBandwidthBytesPerSecond
	}},
}

// rateFields are those of a cluster.Rate that can be fitted.
var rateFields = []string{"limit", "half_width", "half_rows"}

// Names lists what can be fitted: fields of rates, like matmul.limit, and fixed times, overlap, and collective
// bandwidths of the innermost and the outermost level.
func Names() []string {
	names := slices.Collect(maps.Keys(numbers))
	for _, kind := range cluster.RateKinds {
		for _, field := range rateFields {
			names = append(names, kind+"."+field)
		}
	}
	slices.Sort(names)
	return names
}

// with is a cluster with one number changed by set, which is told where it is.
func with(c *cluster.Cluster, values map[string]float64) *cluster.Cluster {
	out := c.Copied()
	kind := out.DeviceTypes[c.Devices[0]]
	t := &kind
	for name, v := range values {
		if rate, field, is := strings.Cut(name, "."); is {
			r := t.Kernels.Rates[rate]
			switch field {
			case "limit":
				r.Limit = v
			case "half_width":
				r.HalfWidth = v
			default:
				r.HalfRows = v
			}
			t.Kernels.Rates[rate] = r
			continue
		}
		*numbers[name].of(t, out) = v
	}
	out.DeviceTypes[c.Devices[0]] = *t
	return out
}

// describe is a number as a cluster has it.
func describe(c *cluster.Cluster, name string) (Number, error) {
	out := c.Copied()
	kind := out.DeviceTypes[c.Devices[0]]
	t := &kind
	n := Number{Name: name, Least: 1e-3, Most: 2}
	if rate, field, is := strings.Cut(name, "."); is && slices.Contains(cluster.RateKinds, rate) &&
		slices.Contains(rateFields, field) {
		r := t.Kernels.Rates[rate]
		if n.Before = r.Limit; field != "limit" {
			n.Least, n.Most = 1, 1e5
			if n.Before = r.HalfRows; field == "half_width" {
				n.Before = r.HalfWidth
			}
		}
	} else if known, ok := numbers[name]; ok {
		n.Least, n.Most = known.least, known.most
		n.Before = *known.of(t, out)
		if l := out.Levels; n.Before == 0 && name == "inside" {
			n.Before = l[0].BandwidthBytesPerSecond
		} else if n.Before == 0 && name == "outside" {
			n.Before = l[len(l)-1].BandwidthBytesPerSecond
		}
	} else {
		return n, fmt.Errorf("calibrate: there is no number %q to fit; %s", name, registry.Instead(name, Names()))
	}
	n.Before = min(max(n.Before, n.Least), n.Most)
	n.After = n.Before
	return n, nil
}

// Run fits numbers to observations.
func Run(c *cluster.Cluster, all []Observation, names []string) (*Fit, error) {
	if len(all) == 0 {
		return nil, errors.New("calibrate: there are no observations")
	}
	if c.DeviceTypes[c.Devices[0]].Kernels == nil {
		return nil, fmt.Errorf("calibrate: device type %s has no kernels to fit; build it on one that has, like {like: "+
			"a100-80gb}", c.Devices[0])
	}
	out := &Fit{HeldOut: math.NaN()}
	for _, name := range names {
		n, err := describe(c, name)
		if err != nil {
			return nil, err
		}
		out.Numbers = append(out.Numbers, n)
	}
	f := fitting{c: c, numbers: out.Numbers}
	before, err := f.residuals(all, make([]float64, len(names)))
	if err != nil {
		return nil, err
	}
	out.Before = meanError(before)
	theta, told, err := f.fit(all)
	if err != nil {
		return nil, err
	}
	after, err := f.residuals(all, theta)
	if err != nil {
		return nil, err
	}
	for i := range out.Numbers {
		out.Numbers[i].After, out.Numbers[i].Told = f.value(i, theta[i]), told[i]
	}
	for _, r := range after {
		out.Residual = append(out.Residual, math.Exp(r))
	}
	out.Cluster, out.After = f.at(theta), meanError(after)
	out.HeldOut, err = f.heldOut(all)
	return out, err
}

// heldOut is the mean error of each group by a fit to the others.
func (f *fitting) heldOut(all []Observation) (float64, error) {
	group := func(i int) string {
		if all[i].Group != "" {
			return all[i].Group
		}
		return fmt.Sprint(i)
	}
	seen := map[string]bool{}
	var errs []float64
	for i := range all {
		name := group(i)
		if seen[name] {
			continue
		}
		seen[name] = true
		var rest, out []Observation
		for k := range all {
			if group(k) == name {
				out = append(out, all[k])
			} else {
				rest = append(rest, all[k])
			}
		}
		if len(rest) == 0 {
			return math.NaN(), nil
		}
		theta, _, err := f.fit(rest)
		if err != nil {
			return 0, err
		}
		r, err := f.residuals(out, theta)
		if err != nil {
			return 0, err
		}
		errs = append(errs, r...)
	}
	return meanError(errs), nil
}

// meanError is the mean of |predicted/measured - 1|.
func meanError(logs []float64) float64 {
	sum := 0.0
	for _, r := range logs {
		sum += math.Abs(math.Exp(r) - 1)
	}
	return sum / float64(len(logs))
}

// Lent is a cluster with the numbers that a fit to another one found, in the proportion in which it changed them.
func Lent(c *cluster.Cluster, fit *Fit) (*cluster.Cluster, error) {
	values := map[string]float64{}
	for _, n := range fit.Numbers {
		own, err := describe(c, n.Name)
		if err != nil {
			return nil, err
		}
		values[n.Name] = min(max(own.Before*n.After/n.Before, own.Least), own.Most)
	}
	return with(c, values), nil
}
