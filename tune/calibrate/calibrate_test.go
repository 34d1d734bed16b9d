package calibrate_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/tune/calibrate"
)

func device() *cluster.Cluster {
	k := &cluster.Kernels{LaunchS: 1e-5, Rates: map[string]cluster.Rate{"matmul": {Limit: 0.8, HalfWidth: 100}}}
	return &cluster.Cluster{Name: "c", Devices: []string{"d"},
		Levels:      []cluster.Level{{Size: 1, BandwidthBytesPerSecond: 1}},
		DeviceTypes: map[string]cluster.DeviceType{"d": {Kernels: k}}}
}

// took returns the seconds of a product of width w on device d, by the equation of package profile/kernels.
func took(c *cluster.Cluster, w float64) float64 {
	k := c.DeviceTypes["d"].Kernels
	return w/k.Rate("matmul").At(w, 0)/1e6 + k.LaunchS
}

// TestNumbersComeBack: a fit to synthetic measurements of a device finds the device's numbers, except that the prior
// pulls them slightly. It predicts held-out measurements too. Numbers that no measurement depends on do not change.
func TestNumbersComeBack(t *testing.T) {
	truth := device()
	k := truth.DeviceTypes["d"].Kernels
	k.Rates["matmul"] = cluster.Rate{Limit: 0.6, HalfWidth: 250}
	var seen []calibrate.Observation
	for _, w := range []float64{10, 50, 100, 300, 1000, 3000, 10000} {
		seen = append(seen, calibrate.Observation{Name: fmt.Sprint(w), Measured: took(truth, w),
			Predict: func(c *cluster.Cluster) (float64, error) { return took(c, w), nil }})
	}
	fit, err := run(device(), seen, []string{"matmul.limit", "matmul.half_width", "memory.limit"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0.6, 250, 0.85} {
		n := fit.Numbers[i]
		if math.Abs(n.After/want-1) > 0.1 {
			t.Errorf("%s is %v, want %v", n.Name, n.After, want)
		}
		if told := n.Told() > 0.3; told != (n.Name != "memory.limit") {
			t.Errorf("of %s %v is told", n.Name, n.Told())
		}
	}
	if fit.After > 0.02 || fit.HeldOut > 0.05 || fit.Before < 0.2 || fit.HeldOut < fit.After {
		t.Errorf("error %v before, %v after, %v held out", fit.Before, fit.After, fit.HeldOut)
	}
	if got := fit.Cluster.DeviceTypes["d"].Kernels.Rate("matmul").Limit; got != fit.Numbers[0].After {
		t.Errorf("the cluster has %v", got)
	}
	if before := device().DeviceTypes["d"].Kernels.Rate("matmul").Limit; before != 0.8 {
		t.Errorf("the device that was given is changed: %v", before)
	}
}

// TestNumbersAtTheirMostAreFitted: a number that begins at its upper limit can be fitted downwards. If measurements
// push a number past its limit, it stays at the limit.
func TestNumbersAtTheirMostAreFitted(t *testing.T) {
	for measured, want := range map[float64]float64{1.2: 0.8, 0.9: 1} {
		c := device()
		kind := c.DeviceTypes["d"]
		kind.Kernels.Overlap = 1
		c.DeviceTypes["d"] = kind
		var seen []calibrate.Observation
		for i := range 6 {
			seen = append(seen, calibrate.Observation{Name: fmt.Sprint(i), Measured: measured,
				Predict: func(c *cluster.Cluster) (float64, error) { return 2 - c.DeviceTypes["d"].Kernels.Overlap, nil }})
		}
		fit, err := calibrate.Run(context.Background(), calibrate.Request{Cluster: c, Observations: seen,
			Names: []string{"overlap"}, Least: 0.1})
		if err != nil {
			t.Fatal(err)
		}
		if n := fit.Numbers[0]; math.Abs(n.After-want) > 0.03 || n.Told() < 0.1 {
			t.Errorf("measured %v: overlap is %v, want %v; %v is told", measured, n.After, want, n.Told())
		}
	}
}

func run(c *cluster.Cluster, all []calibrate.Observation, names []string) (*calibrate.Fit, error) {
	return calibrate.Run(context.Background(), calibrate.Request{Cluster: c, Observations: all, Names: names})
}

func TestRefusals(t *testing.T) {
	one := []calibrate.Observation{{Name: "o", Measured: 1,
		Predict: func(*cluster.Cluster) (float64, error) { return 1, nil }}}
	for want, fails := range map[string]func() (*calibrate.Fit, error){
		"there are no observations": func() (*calibrate.Fit, error) { return run(device(), nil, nil) },
		`no number "matmul.width"`:  func() (*calibrate.Fit, error) { return run(device(), one, []string{"matmul.width"}) },
		"measured -1 s": func() (*calibrate.Fit, error) {
			bad := one[0]
			bad.Measured = -1
			return run(device(), []calibrate.Observation{bad}, []string{"matmul.limit"})
		},
	} {
		if _, err := fails(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if fit, err := run(device(), one, []string{"matmul.limit"}); err != nil || !math.IsNaN(fit.HeldOut) {
		t.Errorf("one observation leaves nothing to hold out: %+v, %v", fit, err)
	}
}

// power returns an observation that is a product of numbers. `of` holds the exponent of each number.
func power(of map[string]float64, measured float64) calibrate.Observation {
	out := calibrate.Observation{Name: fmt.Sprint(of), Measured: measured}
	out.Predict = func(c *cluster.Cluster) (float64, error) {
		k := c.DeviceTypes["d"].Kernels
		at := map[string]float64{"launch": k.LaunchS, "matmul.limit": k.Rate("matmul").Limit,
			"memory.limit": k.Rate("memory").Limit}
		v := 1.0
		for name, n := range of {
			v *= math.Pow(at[name], n)
		}
		return v, nil
	}
	return out
}

// TestSpreads compares the uncertainty of numbers with a calculation by hand, for least squares with a prior. A
// number's precision is 1/doubt^2, plus k^2/noise^2 for each observation that is proportional to the number's k-th
// power.
func TestSpreads(t *testing.T) {
	seen := []calibrate.Observation{power(map[string]float64{"launch": 1}, 1e-5),
		power(map[string]float64{"launch": 1}, 1e-5),
		power(map[string]float64{"matmul.limit": 2}, 0.64)}
	fit, err := run(device(), seen, []string{"launch", "matmul.limit", "memory.limit"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{1 / math.Sqrt(1+2/0.0025), 1 / math.Sqrt(16+4/0.0025), 0.25} {
		if got := fit.Numbers[i].Spread; math.Abs(got/want-1) > 2e-3 {
			t.Errorf("%s: %v, want %v", fit.Numbers[i].Name, got, want)
		}
	}
	if fit.Folds != 3 {
		t.Errorf("%d folds of 3 observations", fit.Folds)
	}
}

// TestNoiseIsWhatIsLeft: remaining errors increase the uncertainty. If two times differ by a factor of e^0.4, each is
// off by e^0.2.
func TestNoiseIsWhatIsLeft(t *testing.T) {
	off := math.Exp(0.2)
	seen := []calibrate.Observation{power(map[string]float64{"launch": 1}, 1e-5*off),
		power(map[string]float64{"launch": 1}, 1e-5/off)}
	fit, err := run(device(), seen, []string{"launch"})
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 / math.Sqrt(1+2/0.04); math.Abs(fit.Numbers[0].Spread/want-1) > 2e-3 {
		t.Errorf("%v, want %v", fit.Numbers[0].Spread, want)
	}
}

// TestWhatToMeasureNext: the next measurement is the one with the most information. This information is half of log(1 +
// h'Sh/noise^2). S is the covariance of the numbers, and h says how the measured time changes with each number. The
// second measurement is chosen as if the first had been made.
func TestWhatToMeasureNext(t *testing.T) {
	fit, err := run(device(), []calibrate.Observation{power(map[string]float64{"launch": 1}, 1e-5)},
		[]string{"launch", "matmul.limit", "memory.limit"})
	if err != nil {
		t.Fatal(err)
	}
	candidate := func(name string, of map[string]float64) calibrate.Candidate {
		return calibrate.Candidate{Name: name, Times: []calibrate.Predictor{power(of, 1).Predict}}
	}
	next, err := fit.Next([]calibrate.Candidate{
		candidate("launch again", map[string]float64{"launch": 1}),
		candidate("products", map[string]float64{"matmul.limit": 3}),
		candidate("products again", map[string]float64{"matmul.limit": 2.9}),
		candidate("memory", map[string]float64{"memory.limit": 2}),
		{Name: "fails", Times: []calibrate.Predictor{func(*cluster.Cluster) (float64, error) { return 0, nil }}},
	}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if len(next) != 3 || next[0].Measure != "products" || next[1].Measure != "memory" {
		t.Fatalf("%+v", next)
	}
	if want := 0.5 * math.Log(1+9*0.0625/0.0025); math.Abs(next[0].Gain/want-1) > 2e-3 {
		t.Errorf("products tell %v, want %v", next[0].Gain, want)
	}
	if a := next[1]; a.Number != "memory.limit" || math.Abs(a.Before-0.25) > 1e-3 ||
		math.Abs(a.After*math.Sqrt(16+4/0.0025)-1) > 2e-3 {
		t.Errorf("%+v", a)
	}
}

// TestOutsideBeginsWithAllRails: a fit of an outer level's bandwidth begins with the bandwidth of all rails of a group,
// as CollectiveS counts it. A number that no observation determines stays out of the file.
func TestOutsideBeginsWithAllRails(t *testing.T) {
	c := device()
	c.Levels = []cluster.Level{{Size: 8, BandwidthBytesPerSecond: 300e9}, {Size: 4, BandwidthBytesPerSecond: 25e9}}
	c.Devices = make([]string, 32)
	for i := range c.Devices {
		c.Devices[i] = "d"
	}
	sum := calibrate.Observation{Name: "sum", Measured: 1.0}
	sum.Predict = func(c *cluster.Cluster) (float64, error) {
		return c.CollectiveS(indices(32), 100e9, cluster.AllReduce), nil
	}
	sum.Measured, _ = sum.Predict(c)
	fit, err := run(c, []calibrate.Observation{sum}, []string{"outside"})
	if err != nil {
		t.Fatal(err)
	}
	if n := fit.Numbers[0]; n.Before != 8*25e9 || math.Abs(n.After/n.Before-1) > 1e-3 || fit.Before > 1e-9 {
		t.Errorf("%+v, error %v before", n, fit.Before)
	}
	if got := fit.Cluster.Levels[1].CollectiveBandwidthBytesPerSecond; got != 0 {
		t.Errorf("the file would say %v", got)
	}
	sum.Measured *= 2
	if fit, err = run(c, []calibrate.Observation{sum, sum, sum, sum, sum, sum}, []string{"outside"}); err != nil {
		t.Fatal(err)
	}
	if got := fit.Cluster.Levels[1].CollectiveBandwidthBytesPerSecond; math.Abs(got/100e9-1) > 0.1 {
		t.Errorf("collectives that take twice as long: %v", got)
	}
}

func indices(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// TestUntoldNumbersStay: a number that the observations barely determine keeps exactly its value.
func TestUntoldNumbersStay(t *testing.T) {
	seen := []calibrate.Observation{power(map[string]float64{"matmul.limit": 1, "memory.limit": 0.01}, 0.4)}
	r := calibrate.Request{Cluster: device(), Observations: seen, Names: []string{"matmul.limit", "memory.limit"}}
	for least, stays := range map[float64]bool{0: false, 0.05: true} {
		r.Least = least
		fit, err := calibrate.Run(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		if n := fit.Numbers[1]; (n.After == n.Before) != stays || n.Spread >= n.Doubt {
			t.Errorf("least %v: %+v", least, n)
		}
		if n := fit.Numbers[0]; math.Abs(n.After/0.4-1) > 0.1 {
			t.Errorf("least %v: %+v", least, n)
		}
	}
}

// TestHeldOutTellsNothing: held-out observations have no influence on the fits that predict them. For each observation,
// the test itself makes a fit without it. The reported error must be the error of these fits. Each fit decides by
// itself which numbers keep their first value. Only the first observation depends on memory, so only the fit without
// the first observation keeps the value of memory.limit.
func TestHeldOutTellsNothing(t *testing.T) {
	all := []calibrate.Observation{power(map[string]float64{"matmul.limit": 1, "memory.limit": 1}, 0.1),
		power(map[string]float64{"matmul.limit": 1}, 0.4), power(map[string]float64{"matmul.limit": 1}, 0.5)}
	r := calibrate.Request{Cluster: device(), Observations: all, Least: 0.05,
		Names: []string{"matmul.limit", "memory.limit"}}
	whole, err := calibrate.Run(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := 0.0
	for i, o := range all {
		r.Observations = slices.Delete(slices.Clone(all), i, i+1)
		fit, err := calibrate.Run(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		if n := fit.Numbers[1]; (n.After == n.Before) != (i == 0) {
			t.Errorf("without observation %d memory is %+v", i, n)
		}
		predicted, err := o.Predict(fit.Cluster)
		if err != nil {
			t.Fatal(err)
		}
		want += math.Abs(predicted/o.Measured-1) / 3
	}
	if math.Abs(whole.HeldOut/want-1) > 1e-12 {
		t.Errorf("held out %v, want %v", whole.HeldOut, want)
	}
}

// TestAFitIsStopped: if its context ends, a fit returns the cause.
func TestAFitIsStopped(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("stopped")
	one := power(map[string]float64{"launch": 1}, 2e-5)
	predict := one.Predict
	one.Predict = func(c *cluster.Cluster) (float64, error) {
		cancel(why)
		return predict(c)
	}
	_, err := calibrate.Run(ctx, calibrate.Request{Cluster: device(), Observations: []calibrate.Observation{one, one},
		Names: []string{"launch"}})
	if !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
}
