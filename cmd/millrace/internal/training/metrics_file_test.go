package training

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestMetricsHoldEveryStepOnce(t *testing.T) {
	for name, c := range map[string]struct {
		was   string
		done  int
		want  string
		again bool // the last step is evaluated again
	}{
		"a new run":          {"", 0, "new\n", false},
		"begun anew":         {"{\"step\":1}\n{\"step\":2}\n", 0, "new\n", false},
		"from the last step": {"{\"step\":1}\n{\"step\":2}\n", 2, "{\"step\":1}\n{\"step\":2}\nnew\n", false},
		"from an earlier checkpoint": {"{\"step\":1}\n{\"step\":1,\"evaluation_loss\":1}\n{\"step\":2}\n{\"step\":3}\n", 1,
			"{\"step\":1}\n{\"step\":1,\"evaluation_loss\":1}\nnew\n", false},
		"cut short":             {"{\"step\":1}\n{\"step\":2,\"lo", 5, "{\"step\":1}\nnew\n", false},
		"not all of it metrics": {"hello\n{\"loss\":1}\n{\"step\":0}\n{\"step\":1}\n", 1, "{\"step\":1}\nnew\n", false},
		"evaluated again": {"{\"step\":1,\"evaluation_loss\":2}\n{\"step\":2}\n{\"step\":2,\"evaluation_loss\":1}\n",
			2, "{\"step\":1,\"evaluation_loss\":2}\n{\"step\":2}\nnew\n", true},
	} {
		path := filepath.Join(t.TempDir(), "metrics.jsonl")
		if c.was != "" {
			if err := os.WriteFile(path, []byte(c.was), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		f, err := openMetrics(path, c.done, c.again)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("new\n"); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != c.want {
			t.Errorf("%s: it holds %q, want %q", name, got, c.want)
		}
	}
}

// From any file, only lines that are JSON about completed steps are kept. Filtering them a second time changes nothing.
func FuzzMetrics(f *testing.F) {
	f.Add([]byte("{\"step\":1}\n{\"step\":2,\"lo"), 5)
	f.Add([]byte("hello\n{\"step\":null}\n{\"step\":3}\n"), 3)
	f.Fuzz(func(t *testing.T, text []byte, done int) {
		kept := metricsUpTo(text, done, false)
		if again := metricsUpTo(kept, done, false); !bytes.Equal(again, kept) {
			t.Errorf("of %q %q is kept, and of that %q", text, kept, again)
		}
		for line := range bytes.Lines(kept) {
			var at struct{ Step int }
			if err := json.Unmarshal(line, &at); err != nil || at.Step < 1 || at.Step > done {
				t.Errorf("%q is kept behind %d steps: %v", line, done, err)
			}
		}
	})
}
