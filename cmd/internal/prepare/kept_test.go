package prepare

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
)

// A model's name is no path: its profile stays in the folder of profiles, and whatever the name is, it has one.
func TestAModelsNameIsNoPath(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	for _, name := range []string{"../../../escaped/evil", "a/b", "..", "/", strings.Repeat("n", 300), "a\x00b"} {
		j := job.Default()
		path := keptIn(&j, &model.Model{Name: name}, "").record
		if filepath.Dir(path) != filepath.Join(cache, "millrace", "profiles") {
			t.Errorf("%.30q: its profile is kept in %s", name, filepath.Dir(path))
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Errorf("%.30q: %v", name, err)
		}
	}
}
