package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Wherever a crash interrupted a commit, the newest checkpoint that has a manifest and all of its files is read. Any
// host can read it, even one without files.
func TestTheNewestWholeCheckpointIsChosenAmongHosts(t *testing.T) {
	for name, c := range map[string]struct {
		spread func(dirs []string)
		steps  byte
		passed string
	}{
		"both have committed": {func(d []string) { spread(t, d, 4, 0, 1) }, 4, ""},
		"one has":             {func(d []string) { spread(t, d, 4, 0) }, 4, ""},
		"the other has":       {func(d []string) { spread(t, d, 4, 1) }, 4, ""},
		"nobody has":          {func(d []string) { spread(t, d, 4) }, 2, ""},
		"a file is on no host": {func(d []string) {
			spread(t, d, 4, 0, 1)
			remove(t, d[1], "step-00000004/stage-1*")
		}, 2, "step-00000004 lacks stage-1.safetensors, which host host1 has written"},
		"its folder is gone": {func(d []string) {
			spread(t, d, 4, 0, 1)
			remove(t, d[1], "step-00000004")
		}, 2, "lacks stage-1.safetensors"},
		"a file is cut short": {func(d []string) {
			spread(t, d, 4, 0, 1)
			cut(t, d[0], "step-00000004/stage-0.safetensors")
		}, 2, "lacks stage-0.safetensors"},
		"a manifest is damaged": {func(d []string) {
			spread(t, d, 4, 0, 1)
			cut(t, d[0], "step-00000004/manifest.json")
		}, 4, ""},
		"one of two is of long ago": {func(d []string) { spread(t, d[1:], 8, 0); spread(t, d, 4, 0, 1) }, 8, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hosts{dirs: append(folders(t, 2), filepath.Join(t.TempDir(), "new"))}
			spread(t, h.dirs[:2], 2, 0, 1)
			c.spread(h.dirs[:2])
			s, err := Among(h.dirs[0], h)
			if err != nil {
				t.Fatal(err)
			}
			if c.passed == "" && len(s.Passed) > 0 || !strings.Contains(strings.Join(s.Passed, "; "), c.passed) {
				t.Errorf("passed over: %q", s.Passed)
			}
			if n := h.checked; n[0]+n[1] != len(s.Where) || n[2] != 0 {
				t.Errorf("%v files are held against their checksums", n)
			}
			for on := range h.dirs {
				if c.steps == 8 { // the checkpoint of step 8 has only one stage
					continue
				}
				got, err := h.read(t, s, on)
				if err != nil || !bytes.Equal(got, []byte{c.steps, c.steps}) {
					t.Errorf("on host %d: %v, %v; want step %d", on, got, err, c.steps)
				}
			}
		})
	}
}

// A file that has changed since it was written is reported, unless another host has an undamaged copy. If a manifest is
// damaged, its host is named too.
func TestDamageAmongHostsIsNamed(t *testing.T) {
	h := &hosts{dirs: folders(t, 2)}
	spread(t, h.dirs, 2, 0, 1)
	spread(t, h.dirs, 4, 0, 1)
	file := filepath.Join(h.dirs[1], "step-00000004", "stage-1.safetensors")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, file)
	_, err = Among(h.dirs[0], h)
	var damaged *DamagedError
	if !errors.As(err, &damaged) || !strings.Contains(err.Error(), "step-00000004: stage-1.safetensors: checksum") ||
		damaged.Whole != filepath.Join(h.dirs[0], "step-00000002") {
		t.Error(err)
	}
	// The second host's path is the run's folder, and is taken as the path of the checkpoints in it. The first host has
	// no files.
	run := filepath.Join(t.TempDir(), "run")
	joined := &hosts{dirs: []string{filepath.Join(t.TempDir(), "new"), run, h.dirs[0]}}
	if err := os.MkdirAll(run, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(run, "checkpoints"), os.DirFS(h.dirs[1])); err != nil {
		t.Fatal(err)
	}
	if _, err = Among(joined.dirs[0], joined); !errors.As(err, &damaged) ||
		damaged.Whole != filepath.Join(run, "checkpoints", "step-00000002") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(h.dirs[0], "step-00000004", "stage-1.safetensors"), whole, 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Among(h.dirs[0], h)
	if err != nil || s.Where["stage-1.safetensors"] != 0 {
		t.Fatal(err, s)
	}
	if got, err := h.read(t, s, 0); err != nil || !bytes.Equal(got, []byte{4, 4}) {
		t.Error(got, err)
	}
	if got, err := h.read(t, s, 1); err != nil || !bytes.Equal(got, []byte{4, 4}) { // host 1 reads host 0's good copy
		t.Error(got, err)
	}
	for _, dir := range h.dirs {
		for _, name := range []string{"step-00000004/manifest.json", "step-00000002/stage-0.safetensors"} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	_, err = Among(h.dirs[0], h)
	if !errors.As(err, &damaged) || damaged.Whole != "" || !strings.Contains(err.Error(), "on host host0: ") {
		t.Error(err)
	}
}

// Hosts with checkpoints of two trainings are refused, unless one of these trainings has a checkpoint on every host.
func TestHostsOfTwoTrainingsAreRefused(t *testing.T) {
	h := &hosts{dirs: folders(t, 3)}
	another := manifest(8)
	another.Training = "another"
	spread(t, h.dirs[:2], 4, 0, 1)
	spreadOf(t, another, h.dirs[2:], 0)
	const says = "rank 2 on host host2 has checkpoints of another training there than rank 0 on host host0"
	if s, err := Among(h.dirs[0], h); err == nil || !strings.Contains(err.Error(), says) {
		t.Error(s, err)
	}
	spread(t, h.dirs[2:], 2, 0)
	if _, err := Among(h.dirs[0], h); err != nil {
		t.Error(err)
	}
}

func TestWhereThereIsNothingAmongHosts(t *testing.T) {
	h := &hosts{dirs: folders(t, 2)}
	if _, err := Among(h.dirs[0], h); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	spread(t, h.dirs, 4, 0)
	remove(t, h.dirs[1], "step-*")
	if _, err := Among(h.dirs[0], h); err == nil || errors.Is(err, ErrNone) ||
		!strings.Contains(err.Error(), "no checkpoint of "+h.dirs[0]+" is whole") {
		t.Error(err)
	}
	one := filepath.Join(h.dirs[0], "step-00000002")
	if s, err := NewShelf(one).Look(); err != nil || len(s.Copies)+len(s.Files) > 0 {
		t.Errorf("%+v, %v of a checkpoint that is not there", s, err)
	}
	spread(t, h.dirs, 2, 0, 1)
	if s, err := NewShelf(one).Look(); err != nil || len(s.Copies) != 1 || s.Copies[0].Steps != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// If a process's folder has its files of the chosen checkpoint only in a draft, this draft becomes the checkpoint. The
// process deletes its other drafts.
func TestDraftsOfACheckpointAreAdopted(t *testing.T) {
	h := &hosts{dirs: folders(t, 2)}
	spread(t, h.dirs, 2, 0, 1)
	spread(t, h.dirs, 4, 0)
	spread(t, h.dirs, 6)
	s, err := Among(h.dirs[0], h)
	if err != nil {
		t.Fatal(err)
	}
	for i, dir := range h.dirs {
		from, _ := h.open(t, s, i)
		store := &Store{Dir: dir, Keep: 1}
		if err := errors.Join(store.Continue(from), store.Prune(), from.Close()); err != nil {
			t.Fatal(err)
		}
		if got := names(t, dir); !slices.Equal(got, []string{"step-00000004"}) {
			t.Errorf("folder %d has %v", i, got)
		}
	}
	if got, err := h.read(t, s, 0); err != nil || !bytes.Equal(got, []byte{4, 4}) {
		t.Error(got, err)
	}
}

// A new checkpoint is about to replace an old one of the same step. After a crash, only one of two hosts has committed
// the new checkpoint. The new checkpoint is read, and replaces the old one.
func TestACheckpointThatWasToGiveWayIsNotMixedIn(t *testing.T) {
	for _, first := range []int{0, 1} { // the host that has committed
		h := &hosts{dirs: folders(t, 2)}
		spread(t, h.dirs, 4, 0, 1)
		draft := DraftName(4, 77)
		var files []File
		for i, dir := range h.dirs {
			at := filepath.Join(dir, draft)
			if err := MakeDraft(at); err != nil {
				t.Fatal(err)
			}
			f, err := WriteFile(at, fmt.Sprintf("stage-%d.safetensors", i), tensors(byte(i), 99))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		text, err := Seal(manifest(4), files)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&Store{Dir: h.dirs[first]}).Commit(draft, text); err != nil {
			t.Fatal(err)
		}
		s, err := Among(h.dirs[0], h)
		if err != nil {
			t.Fatal(err)
		}
		for on := range h.dirs {
			if got, err := h.read(t, s, on); err != nil || !bytes.Equal(got, []byte{99, 99}) {
				t.Errorf("host %d has committed; on host %d: %v, %v", first, on, got, err)
			}
		}
		late := h.dirs[1-first]
		from := &Checkpoint{Path: filepath.Join(late, "step-00000004"), text: text, Manifest: &Manifest{Steps: 4,
			ModelID: "abc", Seed: 3, Files: files}}
		store := &Store{Dir: late}
		if err := errors.Join(store.Continue(from), store.Prune()); err != nil {
			t.Fatal(err)
		}
		if got := names(t, late); !slices.Equal(got, []string{"step-00000004"}) {
			t.Errorf("the other has %v", got)
		}
		if got, err := h.read(t, s, 0); err != nil || !bytes.Equal(got, []byte{99, 99}) {
			t.Errorf("%v, %v", got, err)
		}
	}
}
