package job

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestAWrittenJobIsTheSame: a job is the same after it is written and read again, whatever its settings.
func TestAWrittenJobIsTheSame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job.yaml")
	for name, text := range map[string]string{
		"little": "model: gpt",
		"zeros": "model: convnet\nrate: {base: 0, warmup: 0}\noptimizer: {kind: sgd, momentum: 0, weight_decay: 0}\n" +
			"eval_rows: 0\nkeep: 0",
		"cosine":    "model: gpt\nrate: {kind: cosine, base: 1e-5, total: 7, floor: 1e-6}\nclip: 0.25\npost_validate: true",
		"step":      "model: gpt\nrate: {kind: step, every: 3, factor: 0}\nsplit: [3, block1]\nseed: 18446744073709551615",
		"elastic":   "model: mlp\npipelines: 3\nalpha: 0\naveraging: printed\nrate_scale: split\nweights: elastic",
		"settings":  "model: convnet\nsettings: {widths: [8, 16], dropout: 0.1, bias: false}\nmemory_limit: 512MiB",
		"odd names": "model: gpt\ndata: \"a: 'b' #c\\u2028d\"\nout: \"~\"\nbatch: 64\nworkers: 1",
	} {
		j := Default()
		if err := j.decode([]byte(text), ""); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := j.Complete(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := j.Write(path); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again := Default()
		if err := again.Read(path); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := again.Complete(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for key := range j.called {
			if !again.Given(key) && !strings.HasPrefix(key, "settings.") {
				t.Errorf("%s: %s was given and is not any more", name, key)
			}
		}
		j.givens, again.givens = givens{}, givens{}
		if !reflect.DeepEqual(j, again) {
			t.Errorf("%s: is\n%+v\nwant\n%+v", name, again, j)
		}
	}
}

func TestAJobThatNoFileHoldsIsRefused(t *testing.T) {
	j := Default()
	j.Model.Name = "models/\xff.yaml"
	if err := j.Write(filepath.Join(t.TempDir(), "job.yaml")); err == nil || !strings.Contains(err.Error(), `\xff`) {
		t.Errorf("a name that is no UTF-8: %v", err)
	}
}
