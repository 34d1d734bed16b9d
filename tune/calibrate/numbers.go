package calibrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/registry"
)

// doubt returns the assumed error of a described number, as a logarithm. Limits and bandwidths are from data sheets and
// published products. Fixed times, and the sizes at which half of a rate is reached, are guesses within a factor of e.
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

// numbers lists the numbers that can be fitted, with their allowed ranges. It does not contain fields of rates.
var numbers = map[string]struct {
	least, most float64
	of          func(t *cluster.DeviceType, c *cluster.Cluster) *float64
}{
	"overlap": {0.01, 1, func(t *cluster.DeviceType, _ *cluster.Cluster) *float64 { return &t.Kernels.Overlap }},
	"launch":  {1e-8, 1e-3, func(t *cluster.DeviceType, _ *cluster.Cluster) *float64 { return &t.Kernels.LaunchS }},
	"layer":   {1e-8, 1e-2, func(t *cluster.DeviceType, _ *cluster.Cluster) *float64 { return &t.Kernels.LayerS }},
	"step":    {1e-6, 10, func(t *cluster.DeviceType, _ *cluster.Cluster) *float64 { return &t.Kernels.StepS }},
	"inside":  {1e6, 1e13, collective("inside")},
	"outside": {1e6, 1e13, collective("outside")},
}

// collective returns a function that finds the collective bandwidth of the level that a number names.
func collective(name string) func(*cluster.DeviceType, *cluster.Cluster) *float64 {
	return func(_ *cluster.DeviceType, c *cluster.Cluster) *float64 {
		level, _ := levelOf(c, name)
		return &c.Levels[level].CollectiveBandwidthBytesPerSecond
	}
}

// rateFields lists the fields of a cluster.Rate that can be fitted.
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

// NamesOf lists the numbers that a fit can change. A fit multiplies numbers, so NamesOf leaves out zeros.
func NamesOf(c *cluster.Cluster) (names []string) {
	t := c.DeviceTypes[c.Devices[0]]
	for _, name := range Names() {
		switch kind, field, is := strings.Cut(name, "."); {
		case is && t.Kernels != nil:
			_, own := t.Kernels.Rates[kind]
			r := t.Kernels.Rate(kind)
			if *rateField(&r, field) > 0 && (own || kind != cluster.RateFP8) {
				names = append(names, name)
			}
		case is, t.Kernels == nil:
		case name == "outside" && len(c.Levels) == 1, name == "inside" && c.Levels[0].Size == 1:
		default:
			if _, is := levelOf(c, name); is || *numbers[name].of(&t, c) > 0 {
				names = append(names, name)
			}
		}
	}
	return names
}

// rateField returns a rate's field by its name, one of rateFields.
func rateField(r *cluster.Rate, field string) *float64 {
	switch field {
	case "limit":
		return &r.Limit
	case "half_width":
		return &r.HalfWidth
	}
	return &r.HalfRows
}

// with returns a copy of a cluster with other numbers. If neither the cluster nor `values` gives rates for products in
// fp8, the copy's products in fp8 still follow the rates of other products.
func with(c *cluster.Cluster, values map[string]float64) *cluster.Cluster {
	out := c.Copied()
	kind := out.DeviceTypes[c.Devices[0]]
	t := &kind
	fp8 := false
	for name, v := range values {
		if rate, field, is := strings.Cut(name, "."); is {
			r := t.Kernels.Rates[rate]
			*rateField(&r, field) = v
			t.Kernels.Rates[rate] = r
			fp8 = fp8 || rate == cluster.RateFP8
			continue
		}
		if level, is := levelOf(c, name); is && v == c.CollectiveBandwidth(level) {
			continue // a value equal to the default is left out of the file
		}
		*numbers[name].of(t, out) = v
	}
	if _, own := c.DeviceTypes[c.Devices[0]].Kernels.Rates[cluster.RateFP8]; !own && !fp8 {
		delete(t.Kernels.Rates, cluster.RateFP8)
	}
	out.DeviceTypes[c.Devices[0]] = *t
	return out
}

// levelOf returns the level whose collective bandwidth is the number with this name. `is` is false if the name is not
// that of a collective bandwidth.
func levelOf(c *cluster.Cluster, name string) (level int, is bool) {
	switch name {
	case "inside":
		return 0, true
	case "outside":
		return len(c.Levels) - 1, true
	}
	return 0, false
}

// describe returns a cluster's number with its range and its doubt.
func describe(c *cluster.Cluster, name string) (Number, error) {
	out := c.Copied()
	kind := out.DeviceTypes[c.Devices[0]]
	t := &kind
	n := Number{Name: name, Least: 1e-3, Most: 2, Doubt: doubt(name)}
	if rate, field, is := strings.Cut(name, "."); is && slices.Contains(cluster.RateKinds, rate) &&
		slices.Contains(rateFields, field) {
		r := t.Kernels.Rates[rate]
		if n.Before = *rateField(&r, field); field != "limit" {
			n.Least, n.Most = 1, 1e5
		}
	} else if known, ok := numbers[name]; ok {
		n.Least, n.Most = known.least, known.most
		if level, is := levelOf(c, name); is {
			n.Before = c.CollectiveBandwidth(level)
		} else {
			n.Before = *known.of(t, out)
		}
	} else {
		return n, fmt.Errorf("calibrate: there is no number %q to fit; %s", name, registry.Instead(name, Names()))
	}
	n.Before = min(max(n.Before, n.Least), n.Most)
	n.After = n.Before
	return n, nil
}

// Lent applies a fit to another cluster. It multiplies each number by the factor by which the fit changed it.
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
