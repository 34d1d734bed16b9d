package race_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/lab/race"
)

func TestRivalsOfModules(t *testing.T) {
	gpt := race.SixMillion().Module("rows").Rivals("python3", "dir", 2, 1, 4)
	// There are six micro-batch sizes from 1 to 32, each with 1 and with 2 threads. The four sizes up to 8 are there
	// once more, with a longer warm-up.
	if len(gpt) != 2*6+4 {
		t.Errorf("gpt has %d rivals, want 16", len(gpt))
	}
	resnet := race.ResNet{Classes: 10, Size: 32, Batch: 32, Seed: 1}.Module("rows").Rivals("python3", "dir", 8, 3)
	if len(resnet) != 5*(4+2) {
		t.Errorf("resnet18 has %d rivals, want 5 places of 4, 8, 16 and 32, 4 and 8 with a longer warm-up", len(resnet))
	}
	names := map[string]bool{}
	for _, c := range append(gpt, resnet...) {
		if names[c.Name] = true; !slices.Contains(c.Args, "--rows") || c.Path != "python3" {
			t.Errorf("%+v", c)
		}
	}
	if len(names) != 16+30 {
		t.Errorf("46 rivals have %d names", len(names))
	}
	if got := resnet[1]; got.Name != "1F1B by hand (micro-batch 4, split 3, threads 1, warmup 3)" || got.Steps != 8 ||
		!strings.HasPrefix(strings.Join(got.Args, " "), "-B dir/onef1b_resnet.py --micro 4 --classes 10 --size 32 ") {
		t.Errorf("%+v", got)
	}
}

// A rival reads the recorded batches repeatedly, and refuses an incomplete batch.
func TestRecordedBatches(t *testing.T) {
	python, _, err := race.Python(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := race.WriteScripts(dir); err != nil {
		t.Fatal(err)
	}
	rows := filepath.Join(dir, "rows")
	w := race.Workload{Layers: 2, Width: 16, Heads: 2, Context: 8, Vocabulary: 32, Batch: 4, Optimizer: "sgd",
		LearningRate: 0.1, Seed: 7}
	for _, one := range []struct {
		numbers int
		refused string
	}{{2 * 2 * 4 * 8, ""}, {2*2*4*8 - 1, "1016 bytes; a batch has 512"}, {0, "0 bytes"}} {
		f, err := os.Create(rows)
		if err != nil {
			t.Fatal(err)
		}
		if err := race.Record(f, make([]int64, one.numbers)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		c := w.Module(rows).Rival(python, dir, 2, 3)
		r, err := race.Start(t.Context(), c)
		if one.refused != "" {
			if err == nil || !strings.Contains(err.Error(), one.refused) {
				t.Errorf("%d numbers: %v, want %q", one.numbers, err, one.refused)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if work, err := r.Step(t.Context()); err != nil || work.Samples != 12 || r.Loss > 3.3 {
			t.Errorf("%+v, loss %v: %v", work, r.Loss, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
