package bapipe

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
	"pgregory.net/rapid"
)

// TestTables checks times, bubbles, features and warm-ups against BaPipe's Tables I and II, evaluated by hand. N = 3
// stages and M = 8 micro-batches are those of the paper's Figs. 5 and 6. A forward takes F = 1, a backward B = 2, and a
// transfer SR = 0.5.
func TestTables(t *testing.T) {
	for _, c := range []struct {
		family   string
		time     float64
		features []int
		warmup   []int
	}{
		{"1f1b-as", 30, []int{3, 2, 1}, []int{3, 2, 1}},
		{"fbp-as", 30, []int{6, 4, 2}, []int{5, 3, 1}},
		{"1f1b", 30 + (3 + 8 - 2 - 3), []int{3, 2, 1}, []int{3, 2, 1}},
		{"so", 30 + 2, []int{6, 4, 2}, []int{6, 4, 2}},
	} {
		row, err := Table(c.family, 8, 3, 1, 2, 0.5)
		if err != nil {
			t.Fatal(err)
		}
		if row.TimeS != c.time || math.Abs(row.Bubble-(1-24/c.time)) > 1e-15 {
			t.Errorf("%s: %v and a bubble of %v, want %v and %v", c.family, row.TimeS, row.Bubble, c.time, 1-24/c.time)
		}
		for i := range 3 {
			if got := featuresOf(c.family, i, 3, 8); got != c.features[i] {
				t.Errorf("%s: stage %d holds %d, want %d", c.family, i, got, c.features[i])
			}
			if got := warmup(c.family, i, 3, 8); got != c.warmup[i] {
				t.Errorf("%s: stage %d warms up with %d, want %d", c.family, i, got, c.warmup[i])
			}
		}
	}
	if _, err := Table("zigzag", 1, 1, 1, 1, 0); err == nil {
		t.Error("a schedule that the tables do not have passed")
	}
	for _, bad := range [][5]float64{{0, 3, 1, 2, 0}, {8, 0, 1, 2, 0}, {8, 3, 0, 2, 0}, {8, 3, 1, 0, 0}, {8, 3, 1, 2, -1},
		{8, 3, math.NaN(), 2, 0}} {
		if row, err := Table("1f1b", int(bad[0]), int(bad[1]), bad[2], bad[3], bad[4]); err == nil {
			t.Errorf("M, N, F, B, SR = %v passed: %+v", bad, row)
		}
	}
}

// mixedCase draws a chain of layers and a chain of devices of two types. One type is faster: twice as fast in
// backwards, and in forwards by a factor that differs from layer to layer.
func mixedCase(t *rapid.T, link float64) (plan.Request, []int) {
	n := rapid.IntRange(1, 8).Draw(t, "layers")
	p := &profile.Profile{Version: profile.Version, Model: "chain", ModelID: "x", Source: "roofline",
		OptimizerStates: rapid.IntRange(0, 2).Draw(t, "states")}
	for i := range n {
		l := profile.Layer{Name: string(rune('a' + i)), Kind: "linear", From: []int{i - 1}, TiedTo: -1,
			ParameterBytes: int64(rapid.IntRange(0, 50).Draw(t, "parameters"))}
		f, b := rapid.Float64Range(0.01, 3).Draw(t, "f"), rapid.Float64Range(0.01, 3).Draw(t, "b")
		out := int64(rapid.IntRange(1, 20).Draw(t, "out"))
		for _, d := range []string{"slow", "fast"} {
			l.Costs = append(l.Costs, profile.Cost{Device: d, MicroBatch: 2, ForwardS: f, BackwardS: b,
				OutputBytes: out, SavedBytes: out})
			f, b = f/rapid.Float64Range(1, 4).Draw(t, "faster"), b/2
		}
		p.Layers = append(p.Layers, l)
	}
	N := rapid.IntRange(1, min(6, n)).Draw(t, "devices")
	c := &cluster.Cluster{Name: "mixed", DeviceTypes: map[string]cluster.DeviceType{"slow": {}, "fast": {}},
		Levels: []cluster.Level{{Name: "chain", Size: N, BandwidthBytesPerSecond: link, FullDuplex: true}}}
	given := make([]int, N)
	for i := range N {
		given[i] = i
		c.Devices = append(c.Devices, rapid.SampledFrom([]string{"slow", "fast"}).Draw(t, "type"))
	}
	return plan.Request{Profile: p, Cluster: c, Batch: 2 * rapid.IntRange(1, 12).Draw(t, "M"),
		Set: map[string]string{"dp": "off", "chains": "1"}}, given
}

func limit(t *rapid.T, r plan.Request) {
	for name, d := range r.Cluster.DeviceTypes {
		d.MemoryBytes = int64(rapid.IntRange(50, 1500).Draw(t, "memory"))
		r.Cluster.DeviceTypes[name] = d
	}
}

// TestBalancesExactly compares the plan's time with brute force, without divided layers and on links that take no time.
// Brute force takes the least time over every order of the devices, every split that fits, and both schedules of Table
// II. It reads the costs from the profile and shares no code with the planner.
func TestBalancesExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, given := mixedCase(t, 1e12)
		if rapid.Bool().Draw(t, "limited") {
			limit(t, r)
		}
		r.Set["fractions"] = "off"
		least := math.Inf(1)
		n, N, M := len(r.Profile.Layers), len(given), r.Batch/2
		everyOrder(given, func(order []int) {
			plantest.EverySplit(n, N, func(cuts []int) {
				for _, k := range []int{1, 2} {
					pace, from := 0.0, 0
					fits := true
					for i, d := range order {
						to := n
						if i < N-1 {
							to = cuts[i]
						}
						costs, _, _ := r.Profile.At(r.Cluster.Devices[d], 2)
						stage, fixed, features := 0.0, int64(0), int64(0)
						if from > 0 {
							features = costs[from-1].OutputBytes
						}
						for l := from; l < to; l++ {
							stage += costs[l].ForwardS + costs[l].BackwardS
							fixed += r.Profile.Layers[l].ParameterBytes * int64(2+r.Profile.OptimizerStates)
							features += costs[l].SavedBytes
						}
						pace = max(pace, stage)
						if m := r.Cluster.MemoryBytes(d); m > 0 && fixed+features*int64(min(k*(N-i), M)) > m {
							fits = false
						}
						from = to
					}
					if fits {
						least = min(least, float64(M+N-1)*pace)
					}
				}
			})
		})
		p, err := find(context.Background(), r)
		if math.IsInf(least, 1) {
			var memory *plan.MemoryError
			if !errors.As(err, &memory) {
				t.Fatalf("got %v where nothing fits", err)
			}
			// The limit that the error names is enough, and one byte less is not.
			for off, ok := range map[int64]bool{0: true, 1: false} {
				for name, d := range r.Cluster.DeviceTypes {
					d.MemoryBytes = memory.SmallestBytes - off
					r.Cluster.DeviceTypes[name] = d
				}
				if _, err := find(context.Background(), r); (err == nil) != ok {
					t.Fatalf("with a limit of %d less %d: %v", memory.SmallestBytes, off, err)
				}
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		if math.Abs(p.Objective.Value-least) > 1e-6*least {
			t.Fatalf("objective %v, brute force %v: %+v", p.Objective.Value, least, p.Stages)
		}
	})
}

func everyOrder(devices []int, yield func([]int)) {
	var walk func(done, left []int)
	walk = func(done, left []int) {
		if len(left) == 0 {
			yield(done)
		}
		for i := range left {
			walk(append(slices.Clone(done), left[i]), slices.Concat(left[:i], left[i+1:]))
		}
	}
	walk(nil, devices)
}

// TestDividesLayers: divided boundary layers balance the stages as far as neighbours can share layers. The longest
// stage is never longer than in the partition into whole layers, and every layer is computed exactly once.
func TestDividesLayers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, given := mixedCase(t, 1e12)
		h, err := newChain(r, oneChain(given), 2, "1f1b")
		if err != nil {
			t.Fatal(err)
		}
		always := func(int, int, int) bool { return true }
		cuts := h.balanced(func(int, int) bool { return true }, always)
		longest, _ := h.pace(whole(cuts))
		bounds, limit := h.divided()
		if bounds == nil {
			if len(given) > 1 {
				t.Fatal("no partition, where whole layers have one")
			}
			return
		}
		pace, _ := h.pace(bounds)
		if pace > limit*(1+1e-6) || pace > longest*(1+1e-6) {
			t.Fatalf("divided layers take %v, limit %v, whole ones %v", pace, limit, longest)
		}
		done := make([]float64, len(r.Profile.Layers))
		p := (&exploration{r: r}).plan(h, "1f1b", bounds, r.Batch/2)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, st := range p.Stages {
			for l := st.FirstLayer; l <= st.LastLayer; l++ {
				part := 1.0
				if l == st.FirstLayer && st.FirstFraction > 0 {
					part = st.FirstFraction
				} else if l == st.LastLayer && st.LastFraction > 0 {
					part = st.LastFraction
				}
				done[l] += part
			}
		}
		for l, part := range done {
			if math.Abs(part-1) > 1e-9 {
				t.Fatalf("layer %d is computed %v times: %+v", l, part, p.Stages)
			}
		}
	})
}

// TestReachesT: for four equal layers on three equal devices, the ideal T is the time of 4/3 layers on each device.
// Stages of whole layers cannot take exactly T, but stages with thirds of layers can (FPDeep's case).
func TestReachesT(t *testing.T) {
	r := plantest.EvenChain(4, 3, 1e12)
	p, err := find(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if want := float64(8+3-1) * 4 / 3 * 3; math.Abs(p.Objective.Value-want) > 1e-6 {
		t.Errorf("objective %v, want %v", p.Objective.Value, want)
	}
	if f := p.Stages[0].LastFraction; math.Abs(f-1.0/3) > 1e-6 {
		t.Errorf("the first stage computes %v of its last layer, want a third", f)
	}
	r.Set = map[string]string{"fractions": "off"}
	if p, err = find(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	if want := float64(8+3-1) * 2 * 3; math.Abs(p.Objective.Value-want) > 1e-6 {
		t.Errorf("whole layers: objective %v, want %v", p.Objective.Value, want)
	}
}

// TestCutsWhereFeaturesAreSmall has a slow link, on which most features take longer to send than a stage takes to
// compute. So the plan cuts only where features are small (§3.3.3), and divides no layer.
func TestCutsWhereFeaturesAreSmall(t *testing.T) {
	r := plantest.EvenChain(6, 2, 1)
	r.Profile.Layers[1].Costs[0].OutputBytes = 2 // every other cut takes 10 s each way, and a stage takes 9 s
	p, err := find(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if p.Stages[0].LastLayer != 1 || p.Stages[0].LastFraction != 0 {
		t.Errorf("stages %+v, want the cut behind layer 1", p.Stages)
	}
}

// TestChoosesSchedules: if transfers take time, the schedule is SO where memory holds twice the features that SNO
// needs, and otherwise SNO. On boards it is FBP-AS or 1F1B-AS.
func TestChoosesSchedules(t *testing.T) {
	r := plantest.EvenChain(4, 2, 10)
	p, err := find(context.Background(), r)
	if err != nil || p.Schedule != "so" || p.Stages[0].Warmup != 4 {
		t.Fatalf("got %+v, %v; want SO", p, err)
	}
	// A stage of two layers needs 400 bytes for weights and gradients (2w), and 20 bytes for each micro-batch. The
	// first stage holds 2 micro-batches with SNO and 4 with SO.
	r.Cluster.DeviceTypes["d"] = cluster.DeviceType{MemoryBytes: 459}
	p, err = find(context.Background(), r)
	if err != nil || p.Schedule != "1f1b" || p.Stages[0].Warmup != 2 {
		t.Fatalf("got %+v, %v; want SNO", p, err)
	}
	r.Cluster.DeviceTypes["d"] = cluster.DeviceType{MemoryBytes: 300}
	var memory *plan.MemoryError
	if _, err = find(context.Background(), r); !errors.As(err, &memory) || memory.SmallestBytes != 440 {
		t.Fatalf("got %v, want that 440 bytes would do", err)
	}
	r.Cluster.DeviceTypes["d"] = cluster.DeviceType{FPGA: &cluster.FPGA{DSPSlices: 1, ClockHz: 1, FLOPsPerSlice: 1}}
	// The bandwidth is between Table I's values for FBP-AS, 2a/(F+B), and for 1F1B-AS, a/F, where a is 10 bytes. Sending
	// 10 bytes takes 2.4 s; a forward takes 2 s, and a forward and backward take 6 s.
	r.Cluster.Levels[0].BandwidthBytesPerSecond = 10 / 2.4
	p, err = find(context.Background(), r)
	if err != nil || p.Schedule != "fbp-as" || p.Stages[0].Warmup != 3 {
		t.Fatalf("got %+v, %v; want FBP-AS", p, err)
	}
}

// TestDeviceOrder: a device that is faster in the first layer gets the first stage, although it is the second device in
// the list. With order=given it gets the second stage.
func TestDeviceOrder(t *testing.T) {
	r := plantest.EvenChain(3, 2, 1e12)
	for i := range r.Profile.Layers {
		c := r.Profile.Layers[i].Costs[0]
		c.Device = "e"
		if i == 0 { // the first layer is ten times as fast on device type e
			c.ForwardS, c.BackwardS = 0.1, 0.2
		}
		r.Profile.Layers[i].Costs = append(r.Profile.Layers[i].Costs, c)
	}
	r.Cluster.Devices[1] = "e"
	r.Cluster.DeviceTypes["e"] = cluster.DeviceType{}
	r.Set = map[string]string{"fractions": "off", "dp": "off"}
	p, err := find(context.Background(), r)
	if err != nil || p.Stages[0].Devices[0] != 1 || p.Stages[0].LastLayer != 1 {
		t.Fatalf("got %+v, %v; want two layers on device 1 first", p, err)
	}
	r.Set["order"] = "given"
	if p, err = find(context.Background(), r); err != nil || p.Stages[0].Devices[0] != 0 {
		t.Fatalf("got %+v, %v; want the given order", p, err)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		set  map[string]string
		to   func(*plan.Request)
		want string
	}{
		{map[string]string{"colour": "red"}, nil, `no setting "colour"`},
		{map[string]string{"order": "up"}, nil, `order is "up"; it is search, given`},
		{map[string]string{"stages": "9"}, nil, `stages is "9"`},
		{map[string]string{"chains": "5"}, nil, `chains is "5"; it is auto, or 1 to 2`},
		{map[string]string{"chains": "some"}, nil, `chains is "some"`},
		{map[string]string{"a_th": "much"}, nil, `a_th is "much"`},
		{map[string]string{"schedule": "zigzag"}, nil, `schedule is "zigzag"`},
		{map[string]string{"schedule": "FBP-AS"}, nil, "needs devices that transfer while they compute"},
		{nil, func(r *plan.Request) { r.MicroBatch = 3 }, "no multiple of the micro-batch, 3"},
		{nil, func(r *plan.Request) { r.Formula = "artifact" }, "published no code"},
		{nil, func(r *plan.Request) { r.Profile = &profile.Profile{} }, "0 layers"},
		{nil, func(r *plan.Request) { r.Profile = &profile.Profile{Layers: make([]profile.Layer, mostLayers+1)} },
			"has 10001 layers; it searches up to 10000"},
	} {
		r := plantest.EvenChain(4, 2, 1e9)
		r.Set = c.set
		if c.to != nil {
			c.to(&r)
		}
		if _, err := find(context.Background(), r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want it to say %q", err, c.want)
		}
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := find(gone, plantest.EvenChain(4, 2, 1e9)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v from a request that was given up", err)
	}
}

func BenchmarkBaPipe(b *testing.B) {
	r := plantest.EvenChain(300, 16, 1e9)
	for b.Loop() {
		if _, err := find(context.Background(), r); err != nil {
			b.Fatal(err)
		}
	}
}

// oneChain returns the places of a single chain on these devices.
func oneChain(devices []int) (places [][]int) {
	for _, d := range devices {
		places = append(places, []int{d})
	}
	return places
}
