package job

import (
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write schema.json anew")

func TestSchemaIsCurrent(t *testing.T) {
	want, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("schema.json")
	if err != nil || string(got) != string(want) {
		t.Errorf("schema.json is not what the Job struct says (%v); run go test ./job -rewrite", err)
	}
}

func TestFlagsWinOverFileOverDefaults(t *testing.T) {
	j := Default()
	if err := j.decode([]byte("model: gpt\nbatch: 64\nworkers: 4\noptimizer: {kind: adam}\n"), ""); err != nil {
		t.Fatal(err)
	}
	for _, o := range PlanOptions {
		if o.Name == "batch" {
			if err := o.Set(&j, "16"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := j.Complete(); err != nil {
		t.Fatal(err)
	}
	if j.Plan.Batch != 16 || j.Machine.Workers != 4 || j.Train.Steps != 200 || j.Train.Optimizer.Beta2 != 0.999 ||
		j.Train.Rate.Base != 1e-3 {
		t.Errorf("%+v", j)
	}
}

// If a job omits settings, their defaults depend on the other settings. Settings that it has keep their values.
func TestDefaultsDependOnTheRest(t *testing.T) {
	const adam = "optimizer: {kind: adamw, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01}\n"
	for text, same := range map[string]string{
		"model: gpt":                                adam + "rate: {kind: constant, base: 1e-3, warmup: 20, total: 200}",
		"optimizer: {kind: adamw}":                  adam + "rate: {base: 1e-3, warmup: 20}",
		"optimizer: {kind: adamw, weight_decay: 0}": "optimizer: {kind: adamw, weight_decay: 0, beta1: 0.9}",
		"optimizer: {kind: adam}":                   "optimizer: {kind: adam, weight_decay: 0}\nrate: {warmup: 20}",
		"optimizer: {kind: adam, beta2: 0.95}":      "optimizer: {kind: adam, beta1: 0.9, beta2: 0.95, epsilon: 1e-8}",
		"model: mlp":                                adam + "model: mlp\nrate: {base: 3e-3, warmup: 20}",
		"model: net.mr":                             adam + "model: net.mr\nrate: {base: 3e-4, warmup: 20}",
		"model: mlp\ninit: w.safetensors":           adam + "model: mlp\ninit: w.safetensors\nrate: {base: 3e-4, warmup: 20}",
		"model: mlp\noptimizer: {kind: adam}":       "model: mlp\noptimizer: {kind: adam}\nrate: {base: 3e-3, warmup: 20}",
		"optimizer: {kind: sgd}": "optimizer: {kind: sgd, momentum: 0, weight_decay: 0}\n" +
			"rate: {base: 0.05, warmup: 0}",
		"optimizer: {momentum: 0.5}":       "optimizer: {kind: sgd, momentum: 0.5}",
		"optimizer: {momentum: 0}":         "optimizer: {kind: adamw}",
		"rate: {base: 0.001}":              "rate: {base: 0.001, warmup: 20}",
		"rate: {warmup: 0}":                "rate: {kind: constant, warmup: 0}",
		"rate: {kind: cosine}\nsteps: 50":  "rate: {kind: cosine, warmup: 5, total: 50}\nsteps: 50",
		"rate: {kind: cosine}\nsteps: 500": "rate: {kind: cosine, warmup: 20, total: 500}\nsteps: 500",
	} {
		var jobs [2]Job
		for i, s := range []string{text, same} {
			jobs[i] = Default()
			if !strings.Contains(s, "model") {
				s += "\nmodel: gpt"
			}
			if err := jobs[i].decode([]byte(s), ""); err != nil {
				t.Fatalf("%q: %v", s, err)
			}
			if err := jobs[i].Complete(); err != nil {
				t.Fatalf("%q: %v", s, err)
			}
		}
		jobs[0].called, jobs[1].called = nil, nil
		if !reflect.DeepEqual(jobs[0], jobs[1]) {
			t.Errorf("%q is %+v; %q is %+v", text, jobs[0], same, jobs[1])
		}
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"modle: gpt\n":                                  `unknown field "modle"`,
		"model: gpt\nworkers: 0\n":                      "workers is 0",
		"model: gpt\noptimizer: {kind: lion}\n":         `optimizer.kind is "lion"; there are sgd`,
		"model: gpt\nrate: {kind: cosine, warmup: 300}": "total must be more",
		"model: gpt\nmemory_limit: 5\n":                 `memory_limit is "5"; give a size`,
		"model: [gpt\n":                                 "[1:8]",
		"settings: !x {layers: 3}\n":                    `[1:11] tags like "!x" are not read`,
		"workers: [1]\n":                                "[1:10] it must be a whole number",
		"split: block1.mlp\n":                           "[1:8] string was used where sequence",
		"batch: 32\n":                                   "no model is named",
		"model: gpt\npost_validate: true\n":             "give --clip too",
	} {
		j := Default()
		err := j.decode([]byte(text), "")
		if err == nil {
			err = j.Complete()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want it to say %q", text, err, want)
		}
	}
}

// Reading any text returns a job or an error. A job that can be written is the same when it is read again.
func FuzzDecode(f *testing.F) {
	f.Add("model: gpt\nbatch: 64\n")
	f.Add("model: {name: gpt, settings: {layers: 2}}\nplan: {batch: 64, elastic: {alpha: 0}}\nsave: {every: 3}\n")
	f.Add("model: gpt\ntrain: {steps: 3}\n")
	f.Add("<<: &a {batch: 3}\nplan: *a\n")
	f.Fuzz(func(t *testing.T, text string) {
		j := Default()
		if j.decode([]byte(text), "") != nil || j.Complete() != nil {
			return
		}
		written, err := j.Text()
		if err != nil {
			return
		}
		again, err := Parse(written)
		if err != nil {
			t.Fatalf("%q is written as %s: %v", text, written, err)
		}
		if same, err := again.Text(); err != nil || same != written {
			t.Errorf("%q is written as %s, then as %s (%v)", text, written, same, err)
		}
	})
}

// TestWhatIsGivenIsTaken: a given number is kept, even 0, and a missing one is filled in. The value of Auto is refused.
func TestWhatIsGivenIsTaken(t *testing.T) {
	option := func(j *Job, name, value string) error {
		for _, o := range append(PlanOptions[:len(PlanOptions):len(PlanOptions)], TrainOptions...) {
			if o.Name == name {
				return o.Set(j, value)
			}
		}
		t.Fatalf("there is no --%s", name)
		return nil
	}
	for name, c := range map[string]struct {
		text, flag, value string
		of                func(*Job) any
		want              any
	}{
		"rate in a file": {text: "rate: {base: 0}", of: func(j *Job) any { return j.Train.Rate.Base }, want: 0.},
		"rate":           {flag: "lr", value: "0", of: func(j *Job) any { return j.Train.Rate.Base }, want: 0.},
		"rate left out":  {text: "rate: {base: }", of: func(j *Job) any { return j.Train.Rate.Base }, want: 0.001},
		"momentum in a file": {
			text: "optimizer: {momentum: 0}",
			of:   func(j *Job) any { return j.Train.Optimizer.Momentum },
			want: 0.,
		},
		"momentum": {
			flag: "momentum", value: "0",
			of:   func(j *Job) any { return j.Train.Optimizer.Momentum },
			want: 0.,
		},
		"momentum left out": {of: func(j *Job) any { return j.Train.Optimizer.Momentum }, want: 0.},
		"decay": {
			flag: "weight-decay", value: "0",
			of:   func(j *Job) any { return j.Train.Optimizer.WeightDecay },
			want: 0.,
		},
		"clip": {
			text: "clip: 1", flag: "clip", value: "0",
			of:   func(j *Job) any { return j.Train.Clip },
			want: 0.,
		},
		"warm-up of a cosine": {
			text: "rate: {kind: cosine, warmup: 0}",
			of:   func(j *Job) any { return j.Train.Rate.Warmup },
			want: 0,
		},
		"factor of a step": {
			text: "rate: {kind: step, every: 3, factor: 0}",
			of:   func(j *Job) any { return j.Train.Rate.Factor },
			want: 0.,
		},
		"evaluated rows":         {flag: "eval-rows", value: "0", of: func(j *Job) any { return j.Train.EvalRows }, want: 0},
		"no factor":              {text: "rate: {kind: step, every: 3}", want: "rate.factor is missing"},
		"a factor without steps": {flag: "lr-factor", value: "0.5", want: "--lr-factor is set, and the rate's schedule"},
		"a flag's schedule": {
			text: "rate: {kind: step, every: 3, factor: 0.5}",
			flag: "lr-schedule", value: "cosine",
			of:   func(j *Job) any { return j.Train.Rate.Every },
			want: 0,
		},
		"no period":               {text: "rate: {kind: step, factor: 0.5}", want: "rate.every is missing"},
		"no stages in a file":     {text: "stages: 0", want: "stages is 0; give a whole number, 1 or more"},
		"no total":                {text: "rate: {kind: cosine, total: 0}", want: "the total must be more"},
		"no power":                {text: "rate: {kind: polynomial, power: 0}", want: "rate.power is 0; give a number"},
		"Auto's value as rate":    {flag: "lr", value: "-2147483648", want: "learning rate"},
		"Auto's value as rows":    {flag: "eval-rows", value: "-2147483648", want: "--eval-rows is -2147483648"},
		"a rate beyond float32":   {flag: "lr", value: "1e308", want: "the largest number of float32"},
		"an epsilon 0 in float32": {text: "optimizer: {kind: adam, epsilon: 1e-60}", want: "in float32 it must be above 0"},
	} {
		j := Default()
		err := j.decode([]byte("model: convnet\n"+c.text), "")
		if err == nil && c.flag != "" {
			err = option(&j, c.flag, c.value)
		}
		if err == nil {
			err = j.Complete()
		}
		if c.of == nil {
			if err == nil || !strings.Contains(err.Error(), c.want.(string)) {
				t.Errorf("%s: %v; want %q in it", name, err, c.want)
			}
			continue
		}
		if err != nil || c.of(&j) != c.want {
			t.Errorf("%s: %v (%v), want %v", name, c.of(&j), err, c.want)
		}
	}
}

// The summary of a training says which of its settings are the model's defaults.
func TestLearningSaysWhatIsTheDefault(t *testing.T) {
	for text, want := range map[string]string{
		"model: convnet": "adamw, learning rate 0.001, warm-up 20 steps; the model's defaults",
		"model: net.mr":  "adamw, learning rate 0.0003, warm-up 20 steps; the defaults",
		"model: mlp\nrate: {base: 1}": "adamw, learning rate 1, warm-up 20 steps; " +
			"optimizer and warm-up by default",
		"model: mlp\nrate: {base: 0.1}\nrate_scale: pipelines": "adamw, learning rate 0.2 (0.1 by rate scale pipelines), " +
			"warm-up 20 steps; optimizer and warm-up by default",
		"model: mlp\nsteps: 60\nrate: {kind: cosine}": "adamw, learning rate 0.003 (cosine), warm-up 6 steps; optimizer, " +
			"rate and warm-up by default",
		"model: mlp\nrate: {base: 1, warmup: 1}": "adamw, learning rate 1, warm-up 1 step; optimizer by default",
		"model: mlp\noptimizer: {kind: sgd, momentum: 0.9}\nrate: {kind: cosine, base: 0.1, warmup: 0}": "sgd with " +
			"momentum 0.9, learning rate 0.1 (cosine), no warm-up",
	} {
		j := Default()
		if err := j.decode([]byte(text), ""); err != nil {
			t.Fatal(err)
		}
		if err := j.Complete(); err != nil {
			t.Fatal(err)
		}
		if got := j.Learning(2); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
