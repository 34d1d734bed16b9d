package prepare

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
)

// A model's name is not used as a path: its profile stays in the folder of profiles. Any name may be used.
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

// Measurements are not removed while a process is measuring or writing them.
func TestRemovingWaitsForWhoeverMeasures(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir, err := KeptFolder()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{measuringLock(), writingLock} {
		f, err := lockFile(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		free, err := locked(t.Context(), f, false, func() { t.Error("nobody else has the lock") })
		if err != nil {
			t.Fatal(err)
		}
		var removed atomic.Bool
		waits, done := make(chan struct{}), make(chan error)
		go func() {
			done <- WithoutMeasurers(t.Context(), func() { close(waits) }, func() error {
				removed.Store(true)
				return nil
			})
		}()
		<-waits
		if removed.Load() {
			t.Errorf("%s: removed while somebody measures", name)
		}
		free()
		if err := <-done; err != nil || !removed.Load() {
			t.Errorf("%s: behind it: removed %v, %v", name, removed.Load(), err)
		}
	}
}
