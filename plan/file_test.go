package plan

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// twoStages is a plan that is whole.
func twoStages() *Plan {
	return &Plan{
		Version: Version, Model: "mlp", ModelID: "0123", Cluster: "local",
		Stages: []Stage{
			{FirstLayer: 0, LastLayer: 1, Devices: []int{1}, Warmup: 2},
			{FirstLayer: 2, LastLayer: 2, Devices: []int{0}, Warmup: 1, Recompute: Every(2)},
		},
		Replication: "round_robin", MicroBatch: 4, MicroBatches: 8, Schedule: "1f1b", Weights: "sync", Planner: "pipeline",
		Predicted:  &Predicted{StepS: 0.5, MemoryBytes: []int64{1, 2}, BusyS: []float64{0.25, 0.5}, PeakActivations: []int{1, 2}},
		LowerBound: &LowerBound{StepS: 0.4, Gap: 0.25},
		Why:        []string{"because"},
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	want := twoStages()
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestAPlanCutShortIsRefused(t *testing.T) {
	text, err := json.Marshal(twoStages())
	if err != nil {
		t.Fatal(err)
	}
	for n := range text {
		if _, err := Decode(bytes.NewReader(text[:n])); err == nil || !strings.HasPrefix(err.Error(), "plan: cannot read it: not a whole JSON object") {
			t.Fatalf("the first %d of %d bytes: %v", n, len(text), err)
		}
	}
	if _, err := Decode(bytes.NewReader(append(text, '{'))); err == nil {
		t.Error("text behind the plan is read over")
	}
}

func TestPlansThatContradictThemselves(t *testing.T) {
	for want, change := range map[string]func(*Plan){
		"version is 2":     func(p *Plan) { p.Version = 2 },
		"it has no stages": func(p *Plan) { p.Stages = nil },
		"8 micro-batches of 0 samples; both must be 1 to 268435455":                  func(p *Plan) { p.MicroBatch = 0 },
		"1099511627776 micro-batches of 4 samples":                                   func(p *Plan) { p.MicroBatches = 1 << 40 },
		`replication is "both"; it is split or round_robin`:                          func(p *Plan) { p.Replication = "both" },
		"stage 0 begins with layer 1; the stage before it ends so that it must be 0": func(p *Plan) { p.Stages[0].FirstLayer = 1 },
		"stage 1 begins with layer 1; the stage before it ends so that it must be 2": func(p *Plan) { p.Stages[1].FirstLayer = 1 },
		"stage 1 is layers 2 to 1; it needs one at least":                            func(p *Plan) { p.Stages[1].LastLayer = 1 },
		"stage 0 is on no device":                                                    func(p *Plan) { p.Stages[0].Devices = nil },
		"stage 1 is on device 1, which is negative or named twice":                   func(p *Plan) { p.Stages[1].Devices = []int{1, 1} },
		"stage 0 is on device -1":                                                    func(p *Plan) { p.Stages[0].Devices = []int{-1} },
		"stage 1: first_fraction is 1.5; it is the part of a layer":                  func(p *Plan) { p.Stages[1].FirstFraction = 1.5 },
		"stage 0: last_fraction is -1":                                               func(p *Plan) { p.Stages[0].LastFraction = -1 },
		"stage 0: warmup is -3":                                                      func(p *Plan) { p.Stages[0].Warmup = -3 },
		"predicted: 1 memory_bytes, 2 busy_s and 2 peak_activations":                 func(p *Plan) { p.Predicted.MemoryBytes = []int64{1} },
	} {
		p := twoStages()
		change(p)
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(bytes.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	if err := twoStages().Fits("gpt", "4567", 3); err == nil || !strings.Contains(err.Error(), "it is for model mlp (0123), not for gpt (4567)") {
		t.Errorf("got %v", err)
	}
	if err := twoStages().Fits("mlp", "0123", 4); err == nil || !strings.Contains(err.Error(), "its last stage ends with layer 2; mlp has 4 layers") {
		t.Errorf("got %v", err)
	}
}

// Whatever is read can be written and read again, and is the same.
func FuzzDecode(f *testing.F) {
	text, err := json.Marshal(twoStages())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Decode(strings.NewReader(text))
		if err != nil {
			return
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		q, err := Decode(bytes.NewReader(again))
		if err != nil {
			t.Fatalf("%s was read, %s is not: %v", text, again, err)
		}
		third, err := json.Marshal(q)
		if err != nil || !bytes.Equal(again, third) || p.Batch() < 1 {
			t.Fatalf("%s became %s: %v", again, third, err)
		}
	})
}
