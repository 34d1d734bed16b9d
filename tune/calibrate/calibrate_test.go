package calibrate_test

import (
	"fmt"
	"math"
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

// took is what a product of width w takes on a peak of 1, by package profile/kernels's equation.
func took(c *cluster.Cluster, w float64) float64 {
	k := c.DeviceTypes["d"].Kernels
	return w/k.Rate("matmul").At(w, 0)/1e6 + k.LaunchS
}

// Measurements that a device made by itself give its numbers back, near enough for the prior that pulls at them; what
// was held out is predicted too, and what no measurement depends on stays.
func TestNumbersComeBack(t *testing.T) {
	truth := device()
	k := truth.DeviceTypes["d"].Kernels
	k.Rates["matmul"] = cluster.Rate{Limit: 0.6, HalfWidth: 250}
	var seen []calibrate.Observation
	for _, w := range []float64{10, 50, 100, 300, 1000, 3000, 10000} {
		seen = append(seen, calibrate.Observation{Name: fmt.Sprint(w), Measured: took(truth, w),
			Predict: func(c *cluster.Cluster) (float64, error) { return took(c, w), nil }})
	}
	fit, err := calibrate.Run(device(), seen, []string{"matmul.limit", "matmul.half_width", "memory.limit"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0.6, 250, 0.85} {
		n := fit.Numbers[i]
		if math.Abs(n.After/want-1) > 0.1 {
			t.Errorf("%s is %v, want %v", n.Name, n.After, want)
		}
		if told := n.Told > 0.3; told != (n.Name != "memory.limit") {
			t.Errorf("of %s %v is told", n.Name, n.Told)
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

func TestRefusals(t *testing.T) {
	one := []calibrate.Observation{{Name: "o", Measured: 1,
		Predict: func(*cluster.Cluster) (float64, error) { return 1, nil }}}
	for want, run := range map[string]func() (*calibrate.Fit, error){
		"there are no observations": func() (*calibrate.Fit, error) { return calibrate.Run(device(), nil, nil) },
		`no number "matmul.width"`:  func() (*calibrate.Fit, error) { return calibrate.Run(device(), one, []string{"matmul.width"}) },
		"measured -1 s": func() (*calibrate.Fit, error) {
			bad := one[0]
			bad.Measured = -1
			return calibrate.Run(device(), []calibrate.Observation{bad}, []string{"matmul.limit"})
		},
	} {
		if _, err := run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if fit, err := calibrate.Run(device(), one, []string{"matmul.limit"}); err != nil || !math.IsNaN(fit.HeldOut) {
		t.Errorf("one observation leaves nothing to hold out: %+v, %v", fit, err)
	}
}
