package curves

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// settings are what a training's result depends on in these tests.
type settings struct {
	Rate float64 `json:"rate"`
	Seed uint64  `json:"seed"`
}

func openTrainings(t *testing.T, path string) *Trainings {
	t.Helper()
	f, err := OpenTrainings(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestTrainingsGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trainings.jsonl")
	first := openTrainings(t, path)
	var wait sync.WaitGroup
	for seed := range uint64(5) {
		wait.Go(func() {
			if err := first.Add(settings{0.1, seed}, Training{Method: "sync", Seed: seed,
				Points: falling(3, float64(seed))}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again := openTrainings(t, path)
	for seed := range uint64(5) {
		one, ok, err := again.Find(settings{0.1, seed})
		if err != nil || !ok || one.Seed != seed || len(one.Points) != 2 || one.Points[1].Loss != float64(seed) {
			t.Errorf("seed %d: %+v, %v, %v", seed, one, ok, err)
		}
	}
	for _, other := range []settings{{0.2, 1}, {0.1, 5}} {
		if one, ok, _ := again.Find(other); ok {
			t.Errorf("%v: found %+v", other, one)
		}
	}
}

// Wherever the file is cut off, all complete lines are read again, and more lines can be added.
func TestTrainingsCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trainings.jsonl")
	f := openTrainings(t, path)
	for seed := range uint64(2) {
		if err := f.Add(settings{0.1, seed}, Training{Method: "sync", Seed: seed, Points: falling(3)}); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	line := len(whole) / 2
	for cut := 0; cut < len(whole); cut += 1 + rand.IntN(20) {
		if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		again := openTrainings(t, path)
		if _, ok, _ := again.Find(settings{0.1, 0}); ok != (cut >= line) {
			t.Fatalf("cut at %d of %d: first training found: %v", cut, len(whole), ok)
		}
		if err := again.Add(settings{0.3, 9}, Training{Method: "sync", Seed: 9, Points: falling(3)}); err != nil {
			t.Fatal(err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		if _, ok, _ := openTrainings(t, path).Find(settings{0.3, 9}); !ok {
			t.Fatalf("cut at %d: what was added behind it is lost", cut)
		}
	}
}

func TestTrainingsRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"{}": `line 2: a training without "of" or "method"`,
		"no": "line 2: no training",
		`{"of":{},"method":"sync","points":[{"epoch":2,"loss":1},{"epoch":1,"loss":1}]}`: "line 2: point 1 is at epoch 1; " +
			"epochs rise",
		`{"of":{},"method":"sync","points":[{"epoch":0,"loss":1}]}`: "point 0 is at epoch 0",
	} {
		path := filepath.Join(t.TempDir(), "trainings.jsonl")
		if err := os.WriteFile(path, []byte(`{"of":{},"method":"sync","seed":1,"points":[]}`+"\n"+line+"\n"),
			0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenTrainings(path); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v; want %s", line, err, want)
		}
	}
}

func FuzzParseTraining(f *testing.F) {
	f.Add([]byte(`{"of":{"rate":0.1},"method":"sync","seed":1,"points":[{"epoch":0.05,"loss":2,"accuracy":0.5}]}`))
	f.Add([]byte(`{"of":null,"method":"x"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		one, err := parseTraining(line)
		if err != nil {
			return
		}
		for i := range one.Points {
			if i > 0 && one.Points[i].Epoch <= one.Points[i-1].Epoch {
				t.Fatal("epochs do not rise")
			}
		}
	})
}
