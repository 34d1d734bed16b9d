package job

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// read returns the Job of a text, with all defaults filled in.
func read(t *testing.T, text string) Job {
	t.Helper()
	j := Default()
	if err := j.decode([]byte(text), "job.yaml"); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if err := j.Complete(); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return j
}

// TestBothFormsAreTheSameJob writes one job in both forms, with every group and with settings whose names differ.
func TestBothFormsAreTheSameJob(t *testing.T) {
	nested := read(t, `
model:
  name: gpt
  settings: {layers: 2}
  freeze: [embed]
data: {source: moby.txt, tokenizer: gpt2, seed: 7}
machine: {workers: 4, memory_limit: 512MiB}
plan:
  batch: 64
  file: plan.json
  split: [3, block1]
  staleness: 0
  elastic: {pipelines: 2, alpha: 0.25, averaging: printed}
train:
  steps: 300
  optimizer: {kind: adam, beta2: 0.95}
  rate: {kind: cosine, base: 0, warmup: 5}
  clip: 1
save: {every: 50, mode: stage, keep: 0, resume: runs/a}
output: {folder: runs/b, overwrite: true}
`)
	flat := read(t, `
model: gpt
settings: {layers: 2}
freeze: [embed]
data: moby.txt
tokenizer: gpt2
seed: 7
workers: 4
memory_limit: 512MiB
batch: 64
plan: plan.json
split: [3, block1]
staleness: 0
pipelines: 2
alpha: 0.25
averaging: printed
steps: 300
optimizer: {kind: adam, beta2: 0.95}
rate: {kind: cosine, base: 0, warmup: 5}
clip: 1
save_every: 50
save_mode: stage
keep: 0
resume: runs/a
out: runs/b
overwrite: true
`)
	if len(flat.called) != 28 {
		t.Errorf("the flat form gives %d settings: %v", len(flat.called), flat.called)
	}
	for key, called := range flat.called {
		if !nested.Given(key) || called != key+" in job.yaml" {
			t.Errorf("%s is called %q in the flat form, %q in the nested one", key, called, nested.called[key])
		}
	}
	for key, want := range map[string]string{"data": "data.source", "rate.base": "train.rate.base", "out": "output.folder",
		"alpha": "plan.elastic.alpha", "settings": "model.settings", "save_every": "save.every"} {
		if got := nested.Called(key); got != want+" in job.yaml" {
			t.Errorf("%s is called %q, want %s in job.yaml", key, got, want)
		}
	}
	nested.givens, flat.givens = givens{}, givens{}
	if !reflect.DeepEqual(nested, flat) {
		t.Errorf("nested\n%+v\nflat\n%+v", nested, flat)
	}
}

// If a setting is missing, the error calls it by its name in the form of the job file, flat or nested.
func TestWhatIsMissingIsCalledAsInTheFile(t *testing.T) {
	for text, want := range map[string]string{
		"model: gpt\nrate: {kind: step, every: 3}\n":                  "rate.factor is missing",
		"model: {name: gpt}\ntrain: {rate: {kind: step, every: 3}}\n": "train.rate.factor is missing",
	} {
		j := Default()
		if err := j.decode([]byte(text), "job.yaml"); err != nil {
			t.Fatal(err)
		}
		if err := j.Complete(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestEverySettingHasOnePlace: a setting has one key and one path, and all 61 settings of the flat form still exist.
func TestEverySettingHasOnePlace(t *testing.T) {
	keys, paths := map[string]bool{}, map[string]bool{}
	for _, p := range places {
		if keys[p.key] || paths[p.path] || !strings.Contains(p.path, ".") {
			t.Errorf("%s stands in %s: one of them is twice there, or it is in no group", p.key, p.path)
		}
		keys[p.key], paths[p.path] = true, true
		if pathOf(p.key) != p.path || keyOfPath(p.path) != p.key {
			t.Errorf("%s is in %s; %s is %s", p.key, pathOf(p.key), p.path, keyOfPath(p.path))
		}
	}
	was := strings.Fields("model settings freeze data train_part tokenizer seed init workers cores " +
		"threads_per_worker bind cluster precision tensor sequence_parallel batch steps optimizer " +
		"rate clip post_validate wire stages split schedule program weights staleness boundary " +
		"pipelines alpha averaging reference rate_scale advance batch_norm micro_batch " +
		"micro_batches recompute shard gradients memory_limit profile thorough plan any_order collectives " +
		"eval_every eval_rows save_every save_mode keep resume resume_averaged replay out " +
		"overwrite metrics live token_file")
	for _, key := range was {
		if !keys[key] {
			t.Errorf("%s is no setting any more", key)
		}
	}
	if len(was) != 61 || len(keys) != len(was) || len(says) != len(was) {
		t.Errorf("%d settings, %d are described; the flat form has %d", len(keys), len(says), len(was))
	}
}

// A file that mixes both forms is refused. So is a file with a setting that is unknown, repeated or out of range. The
// error names the setting's line, its right place or its path.
func TestAFileHasOneForm(t *testing.T) {
	for text, want := range map[string]string{
		"model: {name: gpt}\nbatch: 3\n": "[2:1] batch is of the flat form of a job file, and model in line 1 of " +
			"the nested one; give it as plan.batch",
		"model: gpt\nplan: {batch: 3}\n":                  "[1:1] model is of the flat form",
		"settings: {layers: 2}\nsave: {every: 2}\n":       "give it as model.settings",
		"plan: p.json\ntrain: {steps: 3}\n":               "[1:1] plan is of the flat form",
		"plan: {batch: 3}\nbatch: 3\n":                    "give it as plan.batch",
		"<<: {batch: 3}\nplan: {stages: 2}\n":             `[1:6] unknown field "batch"; did you mean plan.batch?`,
		"plan: {batch: 3}\nplan: {stages: 3}\n":           `[2:1] mapping key "plan" already defined at [1:1]`,
		"plan: {batch: 3, batch: 3}\n":                    `[1:18] mapping key "batch" already defined at [1:8]`,
		"batch: 3\nbatch: 3\n":                            `[2:1] mapping key "batch" already defined at [1:1]`,
		"plan:\n  <<: {batch: 3}\n  batch: 3\n":           `[3:3] duplicate key "batch"`,
		"train: {save_every: 3}\n":                        `unknown field "save_every"; did you mean save.every?`,
		"train: {lr: 3}\n":                                `unknown field "lr"; did you mean train.rate.base?`,
		"train: {weight-decay: 3}\n":                      `did you mean train.optimizer.weight_decay?`,
		"plan: {stagse: 3}\n":                             `[1:8] unknown field "stagse"; did you mean plan.stages?`,
		"elastic: {alpha: 3}\n":                           `unknown field "elastic"; did you mean plan.elastic?`,
		"plan: {alpha: 3}\n":                              `did you mean plan.elastic.alpha?`,
		"train: {rate: {bse: 3}}\n":                       `did you mean train.rate.base?`,
		"plan: {batch: 3}\nxyzzy: 3\n":                    `[2:1] unknown field "xyzzy"`,
		"plan: {batch: [3]}\n":                            "[1:15] it must be a whole number",
		"givens: {}\n":                                    `unknown field "givens"`,
		"wrokers: 3\nmodel: gpt\n":                        `[1:1] unknown field "wrokers"; did you mean workers?`,
		"model: {name: gpt}\nmachine:\n  workers: 0\n":    "machine.workers in job.yaml is 0; give",
		"model: gpt\nworkers: 0\n":                        "workers in job.yaml is 0; give",
		"model: {name: gpt}\ntrain: {rate: {base: -1}}\n": "train.rate.base in job.yaml",
		"model: {name: gpt}\nplan: {elastic: {alpha: 1}}": "plan.elastic.alpha in job.yaml is of pipelines side by side",
		"model: gpt\ntrain:\n":                            "model is of the flat form of a job file, and train in line 2",
		"batch:\nmodel: {name: gpt}\n":                    "[1:1] batch is of the flat form",
	} {
		j := Default()
		err := j.decode([]byte(text), "job.yaml")
		if err == nil {
			err = j.Complete()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q in it", text, err, want)
		}
	}
}

// TestWhatHasNoValueSaysNothing: a setting without a value counts as not given. If its key exists in both forms, it
// does not decide which form the file has.
func TestWhatHasNoValueSaysNothing(t *testing.T) {
	for _, text := range []string{"model: gpt\nplan:\n", "model: {name: gpt}\nplan:\ntrain:\n",
		"model: {name: gpt}\nplan: {batch: }", "model: gpt\nbatch:\n"} {
		if j := read(t, text); j.Model.Name != "gpt" || len(j.called) != 1 {
			t.Errorf("%q: %+v", text, j)
		}
	}
}

// TestFilesAreWrittenNested: new files are nested. Settings returns the keys of the flat form for either form.
func TestFilesAreWrittenNested(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job.yaml")
	j := read(t, "model: mlp\nbatch: 8\nrate: {base: 0.5}\nsave_every: 3\npipelines: 2\nout: runs/x")
	if err := j.Write(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var groups map[string]map[string]any
	if err := json.Unmarshal(text, &groups); err != nil {
		t.Fatal(err)
	}
	elastic, _ := groups["plan"]["elastic"].(map[string]any)
	rate, _ := groups["train"]["rate"].(map[string]any)
	if groups["model"]["name"] != "mlp" || groups["plan"]["batch"] != 8. || rate["base"] != 0.5 ||
		groups["save"]["every"] != 3. || elastic["pipelines"] != 2. || groups["output"]["folder"] != "runs/x" {
		t.Errorf("%s", text)
	}
	said, err := Settings(text)
	if err != nil {
		t.Fatal(err)
	}
	rate, _ = said["rate"].(map[string]any)
	if said["model"] != "mlp" || fmt.Sprint(said["batch"], said["save_every"], said["pipelines"],
		rate["base"]) != "8 3 2 0.5" || said["out"] != "runs/x" {
		t.Errorf("%v", said)
	}
	// Settings keeps unknown keys, so that it can read files of any version.
	if said, err = Settings([]byte("plan: {batch: 3, later: {x: 1}}\nnew: 5")); err != nil ||
		fmt.Sprint(said) != "map[batch:3 new:5 plan.later.x:1]" {
		t.Errorf("%v, %v", said, err)
	}
}

// TestAClusterIsNoJob: if a cluster's file is given as a job, the error says how to give it.
func TestAClusterIsNoJob(t *testing.T) {
	const text = "name: two\ndevice: gpu\nlevels:\n  - {name: server, size: 2}\n"
	const want = "it is a cluster, not a job; give it with --cluster two.yaml"
	j := Default()
	if err := j.decode([]byte(text), "two.yaml"); err == nil || err.Error() != want {
		t.Errorf("%v; want: %s", err, want)
	}
}
