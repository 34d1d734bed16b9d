package plan

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
)

// twoStages returns a complete plan of two stages.
func twoStages() *Plan {
	return &Plan{
		Version: Version, Model: "mlp", ModelID: "0123", Cluster: "local",
		Stages: []Stage{
			{FirstLayer: 0, LastLayer: 1, Devices: []int{1}, Warmup: 2},
			{FirstLayer: 2, LastLayer: 2, Devices: []int{0}, Warmup: 1, Recompute: Every(2)},
		},
		Replication: "round_robin", MicroBatch: 4, MicroBatches: 8, Schedule: "1f1b", Weights: "sync",
		Planner: "pipeline",
		Predicted: &Predicted{StepS: 0.5, MemoryBytes: []int64{1, 2}, BusyS: []float64{0.25, 0.5},
			PeakActivations: []int{1, 2}},
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

// TestAPlanSaysWhatItIsFor: a plan file keeps a copy of the cluster that the plan is for.
func TestAPlanSaysWhatItIsFor(t *testing.T) {
	p := twoStages()
	if c, err := p.For(); c != nil || err != nil {
		t.Errorf("%v, %v of a plan that does not say", c, err)
	}
	for _, name := range cluster.Presets() {
		want, err := cluster.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		p.On(want)
		path := filepath.Join(t.TempDir(), "plan.json")
		if err := p.Write(path); err != nil {
			t.Fatal(err)
		}
		read, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read.For(); err != nil || !reflect.DeepEqual(got, want) || read.Cluster != name {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
}

func TestAPlanCutShortIsRefused(t *testing.T) {
	text, err := json.Marshal(twoStages())
	if err != nil {
		t.Fatal(err)
	}
	for n := range text {
		if _, err := Decode(bytes.NewReader(text[:n])); err == nil || !strings.HasPrefix(err.Error(), "plan: cannot "+
			"read it: not a whole JSON object") {
			t.Fatalf("the first %d of %d bytes: %v", n, len(text), err)
		}
	}
	if _, err := Decode(bytes.NewReader(append(text, '{'))); err == nil {
		t.Error("text behind the plan is read over")
	}
}

func TestPlansThatContradictThemselves(t *testing.T) {
	for want, change := range map[string]func(*Plan){
		"version is 2":                         func(p *Plan) { p.Version = 2 },
		"hardware: cluster: the file is empty": func(p *Plan) { p.Hardware = []string{""} },
		"it has a worker on device 4; its hardware has 4 devices": func(p *Plan) {
			c, _ := cluster.Preset("pipedream-c")
			p.On(c)
			p.Stages[0].Devices[0] = 4
		},
		"it has no stages": func(p *Plan) { p.Stages = nil },
		"8 micro-batches of 0 samples; both must be 1 to 268435455": func(p *Plan) {
			p.MicroBatch = 0
		},
		"1099511627776 micro-batches of 4 samples": func(p *Plan) {
			p.MicroBatches = 1 << 40
		},
		`replication is "both"; it is split or round_robin`: func(p *Plan) {
			p.Replication = "both"
		},
		"stage 0 begins with layer 1; the stage before it ends so that it must be 0": func(p *Plan) {
			p.Stages[0].FirstLayer = 1
		},
		"stage 1 begins with layer 1; the stage before it ends so that it must be 2": func(p *Plan) {
			p.Stages[1].FirstLayer = 1
		},
		"stage 1 is layers 2 to 1; it needs one at least": func(p *Plan) {
			p.Stages[1].LastLayer = 1
		},
		"stage 0 is on no device": func(p *Plan) {
			p.Stages[0].Devices = nil
		},
		"stage 1 is on device 1, which is negative or named twice": func(p *Plan) {
			p.Stages[1].Devices = []int{1, 1}
		},
		"stage 0 is on device -1": func(p *Plan) {
			p.Stages[0].Devices = []int{-1}
		},
		"stage 1: first_fraction is 1.5; it is the part of a layer": func(p *Plan) {
			p.Stages[1].FirstFraction = 1.5
		},
		"stage 0: last_fraction is -1": func(p *Plan) {
			p.Stages[0].LastFraction = -1
		},
		"stage 0: warmup is -3": func(p *Plan) {
			p.Stages[0].Warmup = -3
		},
		"stage 1 ends with layer 99999999; a model has 100000 layers at most": func(p *Plan) {
			p.Stages[1].LastLayer = 99999999
		},
		"stage 1 is on device 65536; a cluster has 65536 at most": func(p *Plan) {
			p.Stages[1].Devices = []int{1 << 16}
		},
		"stage 1: warmup is 4611686018427387904": func(p *Plan) {
			p.Stages[1].Warmup = 1 << 62
		},
		"compute 0.5 of layer 1 together": func(p *Plan) {
			p.Stages[0].LastFraction = 0.5
		},
		"first_fraction and last_fraction are both of layer 2; give one": func(p *Plan) {
			p.Stages[1].FirstFraction, p.Stages[1].LastFraction = 0.5, 0.5
		},
		"predicted: step_s is -0.5": func(p *Plan) {
			p.Predicted.StepS = -0.5
		},
		"predicted: busy_s is -1": func(p *Plan) {
			p.Predicted.BusyS[1] = -1
		},
		"predicted: memory_bytes has -2": func(p *Plan) {
			p.Predicted.MemoryBytes[1] = -2
		},
		"predicted: 1 at_most_bytes for 2 devices": func(p *Plan) {
			p.Predicted.AtMostBytes = []int64{1}
		},
		"lower_bound: step_s is -1": func(p *Plan) {
			p.LowerBound.StepS = -1
		},
		"order has 1 layers; the stages have 3": func(p *Plan) {
			p.Order = []int{0}
		},
		"order: layer 0 is at positions 0 and 1": func(p *Plan) {
			p.Order = []int{0, 0, 1}
		},
		"predicted: 1 memory_bytes, 2 busy_s and 2 peak_activations; each has one for each of its 2 devices": func(p *Plan) {
			p.Predicted.MemoryBytes = []int64{1}
		},
		"predicted: 1 memory_bytes, 1 busy_s and 1 peak_activations": func(p *Plan) {
			p.Predicted.MemoryBytes, p.Predicted.BusyS, p.Predicted.PeakActivations = []int64{1}, []float64{1}, []int{1}
		},
		"stage 0 begins with layer -1": func(p *Plan) {
			p.Stages[0].FirstLayer, p.Stages[0].FirstFraction = -1, 0.5
		},
		"stage 1 begins with layer 1;": func(p *Plan) {
			p.Stages[1].FirstLayer, p.Stages[1].FirstFraction = 1, 1
		},
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
	for _, k := range []struct{ from, to, want string }{
		{`"micro_batch":4`, `"micro_batch":1e999`, "1e999"},
		{`"micro_batch":4`, `"micro_batch":4.5`, "4.5"},
		{`"step_s":0.5`, `"step_s":NaN`, "invalid character 'N'"},
		{`"warmup":2`, `"warmup":"2"`, "warmup"},
		{`"warmup":2`, `"warm_up":2`, `unknown field "warm_up"`},
		{`"devices":[1]`, `"devices":1`, "devices"},
	} {
		text, err := json.Marshal(twoStages())
		if err != nil || !strings.Contains(string(text), k.from) {
			t.Fatalf("%v: no %s in %s", err, k.from, text)
		}
		_, err = Decode(strings.NewReader(strings.Replace(string(text), k.from, k.to, 1)))
		if err == nil || !strings.Contains(err.Error(), k.want) {
			t.Errorf("%s: %v, want %q in it", k.to, err, k.want)
		}
	}
	if err := twoStages().Fits("gpt", "4567", 3); err == nil || !strings.Contains(err.Error(), "it is for model mlp "+
		"(0123), not for gpt (4567)") {
		t.Errorf("got %v", err)
	}
	if err := twoStages().Fits("mlp", "0123", 4); err == nil || !strings.Contains(err.Error(), "its last stage ends "+
		"with layer 2; mlp has 4 layers") {
		t.Errorf("got %v", err)
	}
}

// FuzzDecode: a plan that Decode accepts can be written and read again, and stays the same.
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
