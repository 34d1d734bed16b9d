package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/wire/pipe"
)

// lying returns the contents of a checkpoint folder: each checkpoint with its files.
func lying(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		all = append(all, strings.TrimPrefix(f, dir+"/"))
	}
	return all
}

// Processes with a common folder write to it together; processes with their own folders write to those. Every folder
// has the manifest of its checkpoint. In each folder, older checkpoints and remains of crashes are removed.
func TestEachFolderKeepsItsCheckpoints(t *testing.T) {
	want := train(t, small(t, 3, 6))
	for _, folders := range [][]int{{0, 0, 0}, {0, 1, 2}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1}} {
		t.Run(fmt.Sprint(folders), func(t *testing.T) {
			root := t.TempDir()
			dirs := []string{filepath.Join(root, "a"), filepath.Join(root, "b"), filepath.Join(root, "c")}
			for _, dir := range dirs {
				if err := os.MkdirAll(filepath.Join(dir, "step-00000002.left.partial"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			c := small(t, 3, 6)
			var saved []string
			c.Hooks.OnCheckpoint = func(dir string, steps int) { saved = append(saved, dir) }
			w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
			w.change = func(p int, c *Config) {
				c.Checkpoint = Checkpointing{Dir: dirs[folders[p]], Every: 2, Keep: 2}
			}
			got := w.train(t.Context(), t, c).whole(t)
			if err := sameWeights(want.Weights, got.Weights); err != nil {
				t.Error(err)
			}
			last := filepath.Join(dirs[0], "step-00000006")
			if got.Checkpoint != last || len(saved) != 3 || saved[2] != last {
				t.Errorf("%s, after %v", got.Checkpoint, saved)
			}
			for i, dir := range dirs {
				if !slices.Contains(folders, i) {
					continue
				}
				var all []string
				for _, step := range []int{4, 6} {
					name := fmt.Sprintf("step-%08d/", step)
					all = append(all, name+"manifest.json")
					for p, of := range folders {
						if of == i {
							all = append(all, fmt.Sprintf("%sstage-%03d.safetensors", name, p))
						}
					}
				}
				if there := lying(t, dir); !slices.Equal(there, all) {
					t.Errorf("folder %d has\n%v; want\n%v", i, there, all)
				}
				if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
					t.Errorf("folder %d has %v, %v", i, entries, err)
				}
			}
		})
	}
}

// If one process cannot write its part, no folder keeps a draft, and earlier checkpoints stay.
func TestAFullDiskOnOneHostLeavesNoDraft(t *testing.T) {
	why := errors.New("no more room")
	for bad := range 3 {
		dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
		c := small(t, 3, 6)
		w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
		w.change = func(p int, c *Config) {
			c.Checkpoint = Checkpointing{Dir: dirs[p], Every: 2, Keep: 1}
			if p == bad {
				c.Engine = savingEngine{c.Engine, dirs[p], func(_ int, drafts []string) error {
					if strings.Contains(drafts[0], "step-00000004") {
						return why
					}
					return nil
				}}
			}
		}
		out := w.train(t.Context(), t, c)
		for p, err := range out.errs {
			if err == nil || !strings.Contains(err.Error(), why.Error()) ||
				p != bad && !strings.Contains(err.Error(), fmt.Sprintf("host%d", bad)) {
				t.Errorf("disk %d is full; process %d: %v", bad, p, err)
			}
			entries, err := os.ReadDir(dirs[p])
			if err != nil || len(entries) != 1 || entries[0].Name() != "step-00000002" {
				t.Errorf("disk %d is full; process %d has %v, %v", bad, p, entries, err)
			}
		}
	}
}

// If the leader's process cannot write the manifest, no folder keeps a draft.
func TestAManifestThatCannotBeWrittenLeavesNoDraft(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	c := small(t, 3, 6)
	w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
	w.change = func(p int, c *Config) {
		c.Checkpoint = Checkpointing{Dir: dirs[p], Every: 2, Keep: 1}
		if p == 0 {
			c.Engine = savingEngine{c.Engine, dirs[p], func(_ int, drafts []string) error {
				if strings.Contains(drafts[0], "step-00000004") {
					return os.MkdirAll(filepath.Join(drafts[0], "manifest.json"), 0o755)
				}
				return nil
			}}
		}
	}
	out := w.train(t.Context(), t, c)
	for p, err := range out.errs {
		if err == nil || !strings.Contains(err.Error(), "step-00000004.partial/manifest.json: is a directory") {
			t.Errorf("process %d: %v", p, err)
		}
		entries, err := os.ReadDir(dirs[p])
		if err != nil || len(entries) != 1 || entries[0].Name() != "step-00000002" {
			t.Errorf("process %d has %v, %v", p, entries, err)
		}
	}
}

// If one process has no checkpoint folder although the others have one, the run ends before its first step.
func TestAProcessWithoutAFolderIsRefused(t *testing.T) {
	c := small(t, 2, 2)
	c.Checkpoint.Dir = t.TempDir()
	w := worlds{of: []int{0, 1}, carriers: pipe.New}
	w.change = func(p int, c *Config) {
		if p == 1 {
			c.Checkpoint.Dir = ""
		}
	}
	out := w.train(t.Context(), t, c)
	for p, err := range out.errs {
		if err == nil || !strings.Contains(err.Error(), "rank 1 on host host1 is to save, and has no folder") {
			t.Errorf("process %d: %v", p, err)
		}
	}
	if out.results[0].Steps != 0 {
		t.Error(out.results[0].Steps)
	}
}

// On each host with its own folder, checkpoints of an abandoned training are set aside. Checkpoints of a run that a new
// run replaces are removed once the new run has a checkpoint on the host.
func TestOtherCheckpointsAreSetAsideOnEveryHost(t *testing.T) {
	d := fresh(t, 2)
	w := worlds{of: []int{0, 1}, carriers: pipe.New, change: d.saving(0)}
	w.train(t.Context(), t, small(t, 2, 4)).whole(t)
	aside := func(n int) string {
		return filepath.Join(filepath.Dir(d[1]), fmt.Sprintf("aside-%d", n), filepath.Base(d[1]))
	}

	// Resume from step 2, so that step 4 is abandoned.
	all := d
	d = disks{filepath.Join(d[0], "step-00000002"), filepath.Join(d[1], "step-00000002")}
	w = worlds{of: []int{0, 1}, carriers: pipe.New, change: all.saving(0)}
	d.resume(t, &w)
	c := small(t, 2, 3)
	w.train(t.Context(), t, c).whole(t)
	d = all
	if got := lying(t, aside(1)); !slices.Equal(got, []string{"step-00000004/manifest.json",
		"step-00000004/stage-001.safetensors"}) {
		t.Errorf("set aside are %v", got)
	}
	if got := lying(t, d[1]); len(got) != 4 {
		t.Errorf("host 1 has %v", got)
	}

	// Begin a new run in the folders, without resuming.
	w = worlds{of: []int{0, 1}, carriers: pipe.New, change: d.saving(0)}
	w.train(t.Context(), t, small(t, 2, 2)).whole(t)
	if got := lying(t, d[1]); len(got) != 2 || !strings.HasPrefix(got[0], "step-00000002/") {
		t.Errorf("host 1 has %v", got)
	}
	if _, err := os.Stat(filepath.Dir(aside(2))); !errors.Is(err, os.ErrNotExist) {
		t.Error("what was replaced is there: ", err)
	}
}

// A run that resumes from an older checkpoint loses nothing of a newer one. Here host 0 has committed the newer
// checkpoint, and host 1 still has its part as a draft. A crash between the two commits leaves the hosts like this.
func TestADraftIsSetAsideOnItsHost(t *testing.T) {
	d := fresh(t, 2)
	w := worlds{of: []int{0, 1}, carriers: pipe.New, change: d.saving(0)}
	w.train(t.Context(), t, small(t, 2, 4)).whole(t)
	draft := checkpoint.DraftName(4, 9)
	if err := errors.Join(os.Rename(filepath.Join(d[1], "step-00000004"), filepath.Join(d[1], draft)),
		os.Remove(filepath.Join(d[1], draft, "manifest.json"))); err != nil {
		t.Fatal(err)
	}
	named := disks{filepath.Join(d[0], "step-00000002"), filepath.Join(d[1], "step-00000002")}
	w = worlds{of: []int{0, 1}, carriers: pipe.New, change: d.saving(0)}
	named.resume(t, &w)
	w.train(t.Context(), t, small(t, 2, 3)).whole(t)
	aside := filepath.Join(filepath.Dir(d[1]), "aside-1", filepath.Base(d[1]))
	if got := lying(t, aside); !slices.Equal(got, []string{draft + "/stage-001.safetensors"}) {
		t.Errorf("set aside are %v", got)
	}
	if got := lying(t, d[1]); len(got) != 4 || !strings.HasPrefix(got[2], "step-00000003/") {
		t.Errorf("host 1 has %v", got)
	}
}
