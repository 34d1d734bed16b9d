package measured_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/calibrate"
	"github.com/millrace-ml/millrace/tune/measured"
)

func core(t *testing.T, kernels string) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Parse(strings.NewReader("name: core\ndevice_types: {cpu: {like: epyc-7763-core, kernels: {" +
		kernels + "}}}\ndevice: cpu\nlevels: [{name: host, size: 1, bandwidth: 10GB/s}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// profiled returns the profile that would be measured for a model on a core with this description.
func profiled(t *testing.T, m *model.Model, c *cluster.Cluster, sizes ...int) *profile.Profile {
	t.Helper()
	p, err := profile.Analyze(m, c.DeviceTypes, profile.Analysis{Sizes: sizes, States: 2})
	if err != nil {
		t.Fatal(err)
	}
	p.Source, p.Engine, p.Machines = "measured", "torch", nil
	return p
}

// TestACoreComesBack: a fit to the profile of a core that is slower than described finds the core's numbers. Times
// under 1 % of their pass are left out of the observations, and a note says so.
func TestACoreComesBack(t *testing.T) {
	m, err := model.Build("gpt", map[string]any{"layers": 3})
	if err != nil {
		t.Fatal(err)
	}
	truth := core(t, "launch: 9us, rates: {matmul: {limit: 0.5}}")
	p := profiled(t, m, truth, 1, 4, 16)
	for k := range p.Layers[1].Costs { // as if one of three blocks had been disturbed
		p.Layers[1].Costs[k].ForwardS *= 10
	}
	set, err := measured.Layers("gpt.json", p, m, core(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Notes) == 0 || len(set.Observations) == 0 || !strings.HasSuffix(set.Observations[0].Group, ", 1") ||
		strings.Contains(set.Observations[0].Group, "gpt.json") { // profiles of one device are held out together
		t.Errorf("%q, %d observations", set.Notes, len(set.Observations))
	}
	c := core(t, "")
	fit, err := calibrate.Run(context.Background(), calibrate.Request{Cluster: c, Observations: set.Observations,
		Names: calibrate.NamesOf(c), Least: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	if fit.Before < 0.2 || fit.After > 0.02 || fit.HeldOut > 0.05 || fit.Folds != 3 {
		t.Errorf("error %v before, %v after, %v held out in %d", fit.Before, fit.After, fit.HeldOut, fit.Folds)
	}
	for _, n := range fit.Numbers {
		if want := map[string]float64{"matmul.limit": 0.5, "launch": 9e-6}[n.Name]; want > 0 &&
			math.Abs(math.Log(n.After/want)) > 2*n.Spread {
			t.Errorf("%s is %v, want %v within %v", n.Name, n.After, want, n.Spread)
		}
	}
	next, err := fit.Next(set.Candidates(fit.Cluster), 2)
	if err != nil || len(next) == 0 || !strings.Contains(next[0].Measure, "millrace profile gpt with --sizes ") {
		t.Errorf("%+v, %v", next, err)
	}
}

func TestRefusedProfiles(t *testing.T) {
	m, err := model.Build("gpt", map[string]any{"layers": 2})
	if err != nil {
		t.Fatal(err)
	}
	other, err := model.Build("gpt", nil)
	if err != nil {
		t.Fatal(err)
	}
	c := core(t, "")
	good := profiled(t, m, c, 4)
	computed, err := profile.Analyze(m, c.DeviceTypes, profile.Analysis{Sizes: []int{4}, States: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := measured.Layers("p.json", computed, m, c); err == nil ||
		!strings.Contains(err.Error(), "that are computed") {
		t.Errorf("computed costs: %v", err)
	}
	if _, err := measured.Layers("p.json", good, other, c); err == nil ||
		!strings.Contains(err.Error(), "name the one that was profiled with --model") {
		t.Errorf("another model: %v", err)
	}
	a, err := good.Renamed("a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := good.Renamed("b")
	if err != nil {
		t.Fatal(err)
	}
	both, err := profile.Join(profile.Part{Name: "a", Profile: a}, profile.Part{Name: "b", Profile: b})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := measured.Layers("p.json", both, m, c); err == nil || !strings.Contains(err.Error(), "device types a, b") {
		t.Errorf("two types: %v", err)
	}
	if set, err := measured.Layers("p.json", good, m, c); err != nil ||
		strings.HasSuffix(set.Observations[0].Group, ", 4") ||
		!strings.Contains(set.Observations[0].Name, set.Observations[0].Group[strings.LastIndex(
			set.Observations[0].Group, " ")+1:]) {
		t.Errorf("one size is held out by layers: %v", err)
	}
}
