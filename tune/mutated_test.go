package tune

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/predict"
)

// Numbers are replaced by oddNumbers and texts by oddTexts. A value of any kind is replaced by one of oddValues.
var (
	oddNumbers = []any{-1, 0, 1, 2, 3, 4, 5, 6, 8, 16, 0.25, 0.5, 0.75, 1.5, -0.25, 1e-300, 65535, 1 << 31,
		1e15, 1e18, 1e300, -1e300}
	oddTexts = []any{"", "x", "split", "round_robin", "afab", "zb-h1", "1f1b-rr", "zb-v", "so", "stash", "latest",
		"fast", "board", "half", "0B/s", "7GB/s", "-3GiB", "2GiB", "1us", "3s", "every:1", "none"}
	oddValues = []any{true, nil, []any{}, map[string]any{}, "x", -1}
)

// mutate changes one place in a JSON value: a value becomes an odd one, or a member is removed or duplicated.
func mutate(r *rand.Rand, v any) any {
	if r.IntN(30) == 0 {
		return oddValues[r.IntN(len(oddValues))]
	}
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			return v
		}
		keys := slices.Sorted(maps.Keys(v))
		key := keys[r.IntN(len(keys))]
		switch r.IntN(15) {
		case 0:
			delete(v, key)
		case 1:
			v[key+"s"] = v[key]
		default:
			v[key] = mutate(r, v[key])
		}
		return v
	case []any:
		if len(v) == 0 {
			return v
		}
		at := r.IntN(len(v))
		switch r.IntN(15) {
		case 0:
			return slices.Delete(v, at, at+1)
		case 1:
			return append(slices.Clip(v), v[at])
		default:
			v[at] = mutate(r, v[at])
		}
		return v
	case string:
		return oddTexts[r.IntN(len(oddTexts))]
	}
	return oddNumbers[r.IntN(len(oddNumbers))]
}

// mutated returns a text with one or two changes.
func mutated(t *testing.T, r *rand.Rand, text []byte) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	for range 1 + r.IntN(6)/4 {
		v = mutate(r, v)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const sixDevices = `{"name": "six", "device_types": {"fast": {"memory": "16GiB", "peak": "10TFLOPS",
		"memory_bandwidth": "900GB/s", "efficiency": {"": 0.5}},
	"board": {"memory_bandwidth": "40GB/s", "fpga": {"dsp_slices": 10, "clock": "1MHz", "on_chip": "1MiB",
		"transceivers": [{"name": "g", "lanes": 4, "rate": "1Gbps"}]}}},
	"device": "fast", "nodes": [{"count": 2, "memory": "8GiB", "bandwidth": "5GB/s", "latency": "1ms"},
		{"devices": ["fast", "board"]}], "cores": 3,
	"levels": [{"name": "server", "size": 2, "bandwidth": "130GB/s", "latency": "5us", "collective_bandwidth": "100GB/s"},
	{"name": "rack", "size": 3, "bandwidth": "25Gbps", "latency": "30us", "duplex": "half", "uplinks": true}]}`

// sixProfile returns a profile of three layers, with costs on both types of devices.
func sixProfile() *profile.Profile {
	p := &profile.Profile{Version: profile.Version, Model: "three", ModelID: "x", Source: "measured",
		OptimizerStates: 1, PaceSpread: 0.01,
		Transfer: &profile.Transfer{LatencyS: 1e-5, BandwidthBytesPerSecond: 1e9, AllReduceBytesPerSecond: 1e9,
			AllReduceWorkers: 2, DispatchS: 1e-6, SendS: 1e-6, ReceiveS: 1e-6}}
	for i := range 3 {
		l := profile.Layer{Name: fmt.Sprint("l", i), Kind: "linear", From: []int{i - 1}, TiedTo: -1, ParameterBytes: 1000,
			BufferBytes: 8, UpdateTimes: profile.UpdateTimes{UpdateS: 1e-5}}
		if i == 2 {
			l.From, l.TiedTo, l.TiedBytes = []int{1, 0}, 0, 100
		}
		for _, device := range []string{"fast", "board"} {
			for _, size := range []int{1, 2, 4} {
				s := float64(size)
				l.Costs = append(l.Costs, profile.Cost{Device: device, MicroBatch: size, ForwardS: 1e-3 * s, BackwardS: 2e-3 * s,
					BackwardInputS: new(1e-3 * s), BackwardWeightS: new(1e-3 * s),
					Spread: 0.1, OutputBytes: 100 * int64(size), SavedBytes: 200 * int64(size), PendingBytes: new(int64(150)),
					ForwardPeakBytes: 220, BackwardPeakBytes: 240})
			}
		}
		p.Layers = append(p.Layers, l)
	}
	return p
}

// TestMutatedFilesAreReadOrRefused: a changed plan, profile or cluster that can still be read is simulated or refused,
// and causes no panic. A predicted step is neither negative nor longer than 1e15 s.
func TestMutatedFilesAreReadOrRefused(t *testing.T) {
	texts := [3][]byte{2: []byte(sixDevices)}
	for i, v := range []any{
		&plan.Plan{Version: plan.Version, Model: "three", ModelID: "x", Cluster: "six", Replication: "split", MicroBatch: 4,
			MicroBatches: 8, Schedule: "1f1b", Weights: "sync", Planner: "hand",
			Stages: []plan.Stage{{FirstLayer: 0, LastLayer: 1, LastFraction: 0.25, Devices: []int{0, 1}, Warmup: 2,
				Recompute: plan.KeepInput}, {FirstLayer: 1, LastLayer: 2, FirstFraction: 0.75, Devices: []int{5}, Warmup: 1}},
			Predicted: &plan.Predicted{StepS: 1, MemoryBytes: []int64{1, 2, 3}, BusyS: []float64{1, 1, 1},
				PeakActivations: []int{1, 1, 1}}},
		sixProfile(),
	} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = text
	}
	r := rand.New(rand.NewPCG(1, 2))
	counts := map[string]int{}
	now := ""
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%v:\n%s", p, now)
			panic(p)
		}
	}()
	for n := range 800 {
		these := texts
		which := n % 4 // in every fourth run, all three are changed
		for i := range these {
			if which == i || which == 3 {
				these[i] = mutated(t, r, texts[i])
			}
		}
		now = fmt.Sprintf("%s\n%s\n%s", these[0], these[1], these[2])
		pl, err := plan.Decode(bytes.NewReader(these[0]))
		if err != nil {
			counts["plan refused"]++
			continue
		}
		p, err := profile.Decode(bytes.NewReader(these[1]))
		if err != nil {
			counts["profile refused"]++
			continue
		}
		c, err := cluster.Parse(strings.NewReader(string(these[2])))
		if err != nil {
			counts["cluster refused"]++
			continue
		}
		if pl.MicroBatches > 64 || len(c.Devices) > 64 {
			continue // too large to simulate quickly
		}
		predicted, err := predict.Plan(p, c, pl, n%2 == 0)
		if err != nil {
			counts["not simulated"]++
		} else if counts["simulated"]++; !(predicted.StepS >= 0) || predicted.StepS > 1e15 {
			t.Errorf("a step of %v s:\n%s", predicted.StepS, now)
		}
		if n%8 != 0 {
			continue
		}
		for _, planner := range plan.Planners() {
			if _, err := planner.Plan(context.Background(), plan.Request{Profile: p, Cluster: c, Batch: 8}); err == nil {
				counts["planned"]++
			}
		}
	}
	t.Log(counts)
	for _, what := range []string{"plan refused", "profile refused", "cluster refused", "not simulated",
		"simulated", "planned"} {
		if counts[what] < 20 {
			t.Errorf("%s %d times: the changes do not reach that", what, counts[what])
		}
	}
}
