package profile_test

import (
	"bytes"
	"encoding/json"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/profile"
)

// twoLayers returns a measured profile of two layers at two micro-batch sizes.
func twoLayers() *profile.Profile {
	half := 0.5e-3
	costs := func(scale float64) []profile.Cost {
		var all []profile.Cost
		for _, size := range []int{1, 4} {
			s := scale * float64(size)
			all = append(all, profile.Cost{
				Device: "cpu", MicroBatch: size, ForwardS: s * 1e-3, BackwardS: s * 2e-3, BackwardInputS: &half,
				BackwardWeightS: &half, Spread: 0.1,
				OutputBytes: int64(64 * size), SavedBytes: int64(128 * size), WorkspaceBytes: 32, ForwardPeakBytes: 16,
				BackwardPeakBytes: 8,
			})
		}
		return all
	}
	return &profile.Profile{
		Version: profile.Version, Model: "mlp", ModelID: "0123", Source: "measured", Engine: "torch",
		ThreadsPerWorker: 1, Concurrency: 2,
		Optimizer: "adam", OptimizerStates: 2,
		Layers: []profile.Layer{
			{Name: "a", Kind: "dense", From: []int{-1}, ParameterBytes: 1000, BufferBytes: 8, TiedTo: -1,
				UpdateTimes: profile.UpdateTimes{UpdateS: 1e-4},
				Costs:       costs(1)},
			{Name: "b", Kind: "dense", From: []int{0}, ParameterBytes: 500, TiedTo: 0, TiedBytes: 400,
				UpdateTimes: profile.UpdateTimes{UpdateS: 1e-4},
				Costs:       costs(2)},
		},
		Transfer: &profile.Transfer{LatencyS: 1e-5, BandwidthBytesPerSecond: 1e10, AllReduceBytesPerSecond: 1e9,
			AllReduceWorkers: 2, DispatchS: 1e-6, SendS: 2e-5},
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile.json")
	want := twoLayers()
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := profile.Read(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestAProfileCutShortIsRefused(t *testing.T) {
	text, err := json.Marshal(twoLayers())
	if err != nil {
		t.Fatal(err)
	}
	for n := range text {
		if _, err := profile.Decode(bytes.NewReader(text[:n])); err == nil ||
			!strings.HasPrefix(err.Error(), "profile: cannot read it: not a whole JSON object") {
			t.Fatalf("the first %d of %d bytes: %v", n, len(text), err)
		}
	}
}

func TestProfilesThatNoMeasurementGives(t *testing.T) {
	for want, change := range map[string]func(*profile.Profile){
		"version is 2; this millrace reads version 1":                  func(p *profile.Profile) { p.Version = 2 },
		"mlp has no layers":                                            func(p *profile.Profile) { p.Layers = nil },
		"layer 0 (a): tied_to is 1; it must be an earlier layer or -1": func(p *profile.Profile) { p.Layers[0].TiedTo = 1 },
		"layer 1 (b): from is 1; it must be an earlier layer": func(p *profile.Profile) {
			p.Layers[1].From = []int{1}
		},
		"layer 0 (a): parameter_bytes, tied_bytes or buffer_bytes is -1": func(p *profile.Profile) {
			p.Layers[0].ParameterBytes = -1
		},
		"layer 0 (a): update_s is -1": func(p *profile.Profile) {
			p.Layers[0].UpdateS = -1
		},
		"layer 1 (b): costs is empty": func(p *profile.Profile) {
			p.Layers[1].Costs = nil
		},
		"layer 1 (b): micro-batch 0 on cpu: micro_batch is 0": func(p *profile.Profile) {
			p.Layers[1].Costs[0].MicroBatch = 0
		},
		"micro-batch 4 on cpu: forward_s is -1": func(p *profile.Profile) {
			p.Layers[1].Costs[1].ForwardS = -1
		},
		"micro-batch 4 on cpu: a size in bytes is -1": func(p *profile.Profile) {
			p.Layers[1].Costs[1].SavedBytes = -1
		},
		"micro-batch 1 on cpu: it is there twice": func(p *profile.Profile) {
			p.Layers[1].Costs[1].MicroBatch = 1
		},
		"micro-batch 2147483648 on cpu: micro_batch is 2147483648": func(p *profile.Profile) {
			p.Layers[1].Costs[1].MicroBatch = 1 << 31
		},
		"micro-batch 4 on cpu: spread is -0.5":   func(p *profile.Profile) { p.Layers[1].Costs[1].Spread = -0.5 },
		"micro-batch 4 on cpu: feed_s is -1":     func(p *profile.Profile) { p.Layers[1].Costs[1].FeedS = -1 },
		"micro-batch 4 on cpu: again_s is 2e+09": func(p *profile.Profile) { p.Layers[1].Costs[1].AgainS = new(2e9) },
		"micro-batch 4 on cpu: backward_input_s is -1": func(p *profile.Profile) {
			p.Layers[1].Costs[1].BackwardInputS = new(-1.0)
		},
		"micro-batch 4 on cpu: bare_forward_s is -1": func(p *profile.Profile) {
			p.Layers[1].Costs[1].BareForwardS = new(-1.0)
		},
		"layer 1 (b): elastic_update_s is -1":   func(p *profile.Profile) { p.Layers[1].PulledUpdateS = -1 },
		"layer 1 (b): reference_update_s is -2": func(p *profile.Profile) { p.Layers[1].ReferenceUpdateS = -2 },
		"feeds: bytes_per_sample of x is -1": func(p *profile.Profile) {
			p.Layers[0].Feeds = []profile.Feed{{Name: "x", BytesPerSample: -1}}
		},
		"layer 0 (a): the bytes of all layers up to it is 4": func(p *profile.Profile) {
			p.Layers[0].Feeds = []profile.Feed{{Name: "x", BytesPerSample: 1e15}}
		},
		"mlp: optimizer_states is -1; it must be 0 to 65536": func(p *profile.Profile) { p.OptimizerStates = -1 },
		"mlp: optimizer_states is 1099511627776":             func(p *profile.Profile) { p.OptimizerStates = 1 << 40 },
		"mlp: threads_per_worker is -1":                      func(p *profile.Profile) { p.ThreadsPerWorker = -1 },
		"mlp: concurrency is -2":                             func(p *profile.Profile) { p.Concurrency = -2 },
		"mlp: pace_spread is -1":                             func(p *profile.Profile) { p.PaceSpread = -1 },
		"mlp: transfer: bandwidth_bytes_per_s is 0": func(p *profile.Profile) {
			p.Transfer.BandwidthBytesPerSecond = 0
		},
		"mlp: transfer: bandwidth_bytes_per_s is -1": func(p *profile.Profile) { p.Transfer.BandwidthBytesPerSecond = -1 },
		"mlp: transfer: bandwidth_bytes_per_s is 1e-300": func(p *profile.Profile) {
			p.Transfer.BandwidthBytesPerSecond = 1e-300
		},
		"mlp: transfer: all_reduce_bytes_per_s is -1": func(p *profile.Profile) { p.Transfer.AllReduceBytesPerSecond = -1 },
		"mlp: transfer: latency_s is -1":              func(p *profile.Profile) { p.Transfer.LatencyS = -1 },
		"mlp: transfer: dispatch_s is 1e+30":          func(p *profile.Profile) { p.Transfer.DispatchS = 1e30 },
		"mlp: transfer: send_s is -3":                 func(p *profile.Profile) { p.Transfer.SendS = -3 },
	} {
		p := twoLayers()
		change(p)
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := profile.Decode(bytes.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
		if err := p.Write(filepath.Join(t.TempDir(), "p.json")); err == nil && p.Version == profile.Version {
			t.Errorf("%q: it is written all the same", want)
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		p := twoLayers()
		p.Layers[0].Costs[0].BackwardS = bad
		if err := p.Validate(); err == nil {
			t.Errorf("a backward of %v s is taken", bad)
		}
	}
	if _, err := profile.Decode(strings.NewReader(`{"version": 1, "colour": 1}`)); err == nil ||
		!strings.Contains(err.Error(), `unknown field "colour"`) {
		t.Errorf("got %v", err)
	}
}

// FuzzDecode: a profile that can be read has a cost for every layer at its sizes, and can be written and read again.
func FuzzDecode(f *testing.F) {
	text, err := json.Marshal(twoLayers())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := profile.Decode(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, device := range p.DeviceTypes() {
			for _, size := range p.Sizes(device) {
				if costs, _, err := p.At(device, size); err == nil && len(costs) != len(p.Layers) {
					t.Fatalf("%d costs of %d layers", len(costs), len(p.Layers))
				}
			}
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := profile.Decode(bytes.NewReader(again)); err != nil {
			t.Fatalf("%s was read, %s is not: %v", text, again, err)
		}
	})
}

// TestTermsOfEarlierVersionsAreReadAndDropped: files with fields that are no longer measured can be read. Those fields
// are ignored and never written.
func TestTermsOfEarlierVersionsAreReadAndDropped(t *testing.T) {
	p := twoLayers()
	var now bytes.Buffer
	if err := json.NewEncoder(&now).Encode(p); err != nil {
		t.Fatal(err)
	}
	before := strings.Replace(now.String(), `"dispatch_s":`,
		`"layer_s":2e-6,"wake_s":3e-5,"turn_s":1e-5,"stall_s":0.01,"dispatch_s":`, 1)
	if before == now.String() {
		t.Fatal("the profile has no transfer")
	}
	got, err := profile.Decode(strings.NewReader(before))
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := json.NewEncoder(&again).Encode(got); err != nil {
		t.Fatal(err)
	}
	if again.String() != now.String() {
		t.Errorf("read and written again: %s\nwant %s", again.String(), now.String())
	}
}
