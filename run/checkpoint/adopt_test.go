package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// goOn makes each host's folder continue with the checkpoint that Among chooses, and prunes the folder.
func (h *hosts) goOn(t *testing.T, keep int) (stores []*Store) {
	t.Helper()
	s, err := Among(h.dirs[0], h)
	if err != nil {
		t.Fatal(err)
	}
	for i, dir := range h.dirs {
		from, _ := h.open(t, s, i)
		store := &Store{Dir: dir, Keep: keep}
		if err := errors.Join(store.Continue(from), store.SetOthersAside(from), store.Prune()); err != nil {
			t.Fatal(err)
		}
		stores = append(stores, store)
	}
	return stores
}

// If a host's manifest is damaged or missing but its file is undamaged, the file stays and the manifest is written
// again.
func TestAManifestThatIsDamagedOnOneHostIsWrittenAnew(t *testing.T) {
	for name, harm := range map[string]func(dir string){
		"damaged": func(dir string) { cut(t, dir, "step-00000004/manifest.json") },
		"gone":    func(dir string) { remove(t, dir, "step-00000004/manifest.json") },
	} {
		h := &hosts{dirs: folders(t, 2)}
		spread(t, h.dirs, 2, 0, 1)
		spread(t, h.dirs, 4, 0, 1)
		harm(h.dirs[1])
		h.goOn(t, 2)
		if got := names(t, h.dirs[1]); !slices.Equal(got, []string{"step-00000002", "step-00000004"}) {
			t.Errorf("%s: host 1 has %v", name, got)
		}
		remove(t, h.dirs[0], "step-00000004/manifest.json") // so that the manifest written again is the only one
		s, err := Among(h.dirs[0], h)
		if err != nil {
			t.Fatal(name, err)
		}
		if got, err := h.read(t, s, 0); err != nil || !slices.Equal(got, []byte{4, 4}) {
			t.Error(name, got, err)
		}
	}
}

// Two processes that do not know that they share the folder both commit the same draft. The checkpoint stays complete.
func TestASecondCommitHarmsNothing(t *testing.T) {
	for _, before := range []bool{false, true} { // whether there is another checkpoint of this step
		dir := t.TempDir()
		if before {
			if _, err := written(&Store{Dir: dir}, 4, 9); err != nil {
				t.Fatal(err)
			}
		}
		draft, files, err := drafted(&Store{Dir: dir}, 4, 7)
		if err != nil {
			t.Fatal(err)
		}
		text, err := Seal(manifest(4), files)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := (&Store{Dir: dir}).Commit(draft, text); err != nil {
				t.Fatal(err)
			}
		}
		if steps, value, err := valueIn(dir); steps != 4 || value != 7 || err != nil {
			t.Errorf("step %d has %d, %v", steps, value, err)
		}
		if got := names(t, dir); !slices.Equal(got, []string{"step-00000004"}) {
			t.Errorf("there are %v", got)
		}
	}
}

// A host that joins with checkpoints of another training of the same model does not lose them at once. They are set
// aside, and removed together once this training has written a checkpoint there.
func TestCheckpointsOfAnotherTrainingAreNotTakenForOnesOwn(t *testing.T) {
	dirs := folders(t, 3)
	h := &hosts{dirs: dirs, joined: 1}
	for _, steps := range []int{2, 4, 6} {
		of := manifest(steps)
		of.Training = "this one"
		spreadOf(t, of, dirs[:2], 0, 1)
	}
	for _, steps := range []int{1, 2} {
		of := manifest(steps)
		of.Training = "another"
		spreadOf(t, of, dirs[2:], 0)
	}
	stores := h.goOn(t, 1)
	for i, want := range [][]string{{"step-00000006"}, {"step-00000006"}, nil} {
		if got := names(t, dirs[i]); !slices.Equal(got, want) {
			t.Errorf("host %d has %v; want %v", i, got, want)
		}
	}
	aside := filepath.Join(filepath.Dir(dirs[2]), "aside-1", filepath.Base(dirs[2]))
	if got := names(t, aside); !slices.Equal(got, []string{"step-00000001", "step-00000002"}) {
		t.Errorf("aside are %v", got)
	}
	if _, err := written(stores[2], 7, 1); err != nil { // the function `written` also prunes
		t.Fatal(err)
	}
	if _, err := os.Stat(aside); !errors.Is(err, os.ErrNotExist) {
		t.Error("what is replaced is there: ", err)
	}
}

// A run may resume from an older checkpoint, because a path names that checkpoint or because a host is missing. It then
// sets the drafts of newer checkpoints aside, because they may be complete together with files on other hosts. A run
// that resumes from the newest checkpoint deletes drafts of later steps.
func TestDraftsOfNewerCheckpointsAreSetAside(t *testing.T) {
	for name, c := range map[string]struct{ named, missing bool }{"newest": {}, "named": {named: true},
		"a host is missing": {missing: true}} {
		all := folders(t, 3)
		h := &hosts{dirs: all[:2]}
		spread(t, h.dirs, 2, 0, 1)
		if c.missing {
			spread(t, all, 4, 0)
		} else {
			spread(t, h.dirs, 4, 0)
		}
		spread(t, h.dirs, 6)
		on := &hosts{dirs: h.dirs}
		if c.named {
			on.dirs = []string{filepath.Join(all[0], "step-00000002"), filepath.Join(all[1], "step-00000002")}
		}
		s, err := Among(on.dirs[0], on)
		if err != nil {
			t.Fatal(name, err)
		}
		aside := &hosts{}
		for i, dir := range h.dirs {
			from, _ := on.open(t, s, i)
			store := &Store{Dir: dir}
			if err := errors.Join(store.Continue(from), store.SetOthersAside(from), store.Prune()); err != nil {
				t.Fatal(name, err)
			}
			want, moved := []string{"step-00000002"}, filepath.Join(filepath.Dir(dir), "aside-1")
			at := filepath.Join(t.TempDir(), "aside")
			switch err := os.Rename(moved, at); {
			case !c.named && !c.missing:
				want = append(want, "step-00000004")
				if !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s: host %d has set drafts aside that are of no checkpoint: %v", name, i, err)
				}
			case err != nil:
				t.Fatal(name, err)
			}
			aside.dirs = append(aside.dirs, filepath.Join(at, filepath.Base(dir)))
			if got := names(t, dir); !slices.Equal(got, want) {
				t.Errorf("%s: host %d has %v", name, i, got)
			}
		}
		if !c.named && !c.missing {
			continue
		}
		aside.dirs = append(aside.dirs, all[2])
		if s, err = Among(aside.dirs[0], aside); err != nil {
			t.Fatal(name, err)
		}
		if got, err := aside.read(t, s, 1); err != nil || !slices.Equal(got, []byte{4, 4}) {
			t.Error(name, got, err)
		}
	}
}
