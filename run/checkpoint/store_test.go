package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/stage/optim"
)

func manifest(steps int) Manifest {
	return Manifest{
		Model: "mlp", ModelID: "abc", Engine: "ref", Float: "F64", Steps: steps, Seed: 3, Batch: 8,
		Samples: int64(8 * steps), MicroBatch: 2,
		Optimizer: optim.Settings{Kind: optim.SGD}, Rate: optim.Rate{Kind: optim.Constant, Base: 0.1},
		Asked: &Asked{Steps: 100},
	}
}

func tensors(stage, value byte) []Tensor {
	return []Tensor{
		{Name: fmt.Sprintf("layer%d.weight", stage), DType: engine.Float32, Shape: []int64{3},
			Data: bytes.Repeat([]byte{value}, 12)},
		{Name: fmt.Sprintf("layer%d.weight#momentum", stage), DType: engine.Float32, Shape: []int64{3},
			Data: bytes.Repeat([]byte{value + 1}, 12)},
	}
}

// written writes a complete checkpoint of two stages.
func written(s *Store, steps int, value byte) (string, error) {
	draft, files, err := drafted(s, steps, value)
	if err != nil {
		return "", errors.Join(err, s.Abandon(draft))
	}
	text, err := Seal(manifest(steps), files)
	if err != nil {
		return "", err
	}
	path, err := s.Commit(draft, text)
	if err != nil {
		return "", errors.Join(err, s.Abandon(draft))
	}
	return path, s.Prune()
}

// drafted writes the draft of a checkpoint of two stages, with the store's create function, which may fail.
func drafted(s *Store, steps int, value byte) (string, []File, error) {
	draft := DraftName(steps, uint64(value))
	path, err := s.Draft(draft)
	if err != nil {
		return "", nil, err
	}
	if err := MakeDraft(path); err != nil {
		return draft, nil, err
	}
	create := createFile
	if s.create != nil {
		create = s.create
	}
	var files []File
	for stage := range byte(2) {
		f, err := writeTensors(create, path, fmt.Sprintf("stage-%d.safetensors", stage), tensors(stage, value))
		if err != nil {
			return draft, nil, err
		}
		files = append(files, f)
	}
	return draft, files, nil
}

// valueIn opens a checkpoint and returns the byte its tensors were filled with.
func valueIn(path string) (steps int, value byte, err error) {
	c, err := Open(path)
	if err != nil {
		return 0, 0, err
	}
	x, err := c.Tensor("layer1.weight")
	return c.Manifest.Steps, x.Data[0], errors.Join(err, c.Close())
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestTheLatestCheckpointsAreKept(t *testing.T) {
	s := &Store{Dir: filepath.Join(t.TempDir(), "run", "checkpoints"), Keep: 2}
	for _, dir := range []string{t.TempDir(), s.Dir} { // the second folder does not exist yet
		if _, err := Latest(dir); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), dir) {
			t.Error(err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Latest(file); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("of a file: %v", err)
	}
	for i, steps := range []int{5, 10, 100} {
		if _, err := written(s, steps, byte(i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, s.Dir); !slices.Equal(got, []string{"step-00000010", "step-00000100"}) {
		t.Error(got)
	}
	steps, value, err := valueIn(s.Dir)
	if steps != 100 || value != 2 || err != nil {
		t.Error(steps, value, err)
	}
	if steps, value, err = valueIn(filepath.Join(s.Dir, "step-00000010")); steps != 10 || value != 1 || err != nil {
		t.Error(steps, value, err)
	}
}

func TestACheckpointOfTheSameStepGivesWay(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Keep: 3}
	for value := range byte(2) {
		if _, err := written(s, 7, value); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, s.Dir); !slices.Equal(got, []string{"step-00000007"}) {
		t.Error(got)
	}
	if _, value, err := valueIn(s.Dir); value != 1 || err != nil {
		t.Error(value, err)
	}
	// A crash between the two renames leaves the older checkpoint under its second name.
	if err := os.Rename(filepath.Join(s.Dir, "step-00000007"),
		filepath.Join(s.Dir, "step-00000007"+replaced)); err != nil {
		t.Fatal(err)
	}
	if steps, _, err := valueIn(s.Dir); steps != 7 || err != nil {
		t.Error(steps, err)
	}
}

func TestWhatWasCutShortIsNotSeen(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Keep: 3}
	if _, err := written(s, 1, 1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := drafted(s, 2, 9); err != nil {
		t.Fatal(err)
	}
	if err := s.Mark(DraftName(7, 3), 0); err != nil { // a mark of a process that no longer exists
		t.Fatal(err)
	}
	// The process ends here, and another one continues.
	if steps, value, err := valueIn(s.Dir); steps != 1 || value != 1 || err != nil {
		t.Error(steps, value, err)
	}
	if _, err := written(s, 2, 2); err != nil {
		t.Fatal(err)
	}
	if got := names(t, s.Dir); !slices.Equal(got, []string{"step-00000001", "step-00000002"}) {
		t.Error(got)
	}
}

// disk is a file on a disk with this many bytes left.
type disk struct {
	output
	left *int
}

func (d disk) Write(p []byte) (int, error) {
	if n := *d.left; len(p) > n {
		*d.left = 0
		_, err := d.output.Write(p[:n])
		return n, errors.Join(syscall.ENOSPC, err)
	}
	*d.left -= len(p)
	return d.output.Write(p)
}

func (d disk) Sync() error {
	if *d.left == 0 {
		return syscall.ENOSPC
	}
	return d.output.Sync()
}

// At whatever byte the disk becomes full, the error says so, the older checkpoint stays complete and no half-written
// file remains.
func TestADiskThatFillsUpHarmsNothing(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Keep: 1}
	if _, err := written(s, 1, 1); err != nil {
		t.Fatal(err)
	}
	full := 0
	for left := 0; ; left += 37 {
		room := left
		s.create = func(path string) (output, error) {
			f, err := os.Create(path)
			return disk{f, &room}, err
		}
		_, err := written(s, 2, 2)
		if err == nil {
			break
		}
		full++
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("with %d bytes left: %v", left, err)
		}
		if got := names(t, s.Dir); !slices.Equal(got, []string{"step-00000001"}) {
			t.Fatalf("with %d bytes left: %v", left, got)
		}
		if steps, value, err := valueIn(s.Dir); steps != 1 || value != 1 || err != nil {
			t.Fatalf("with %d bytes left: %d, %d, %v", left, steps, value, err)
		}
	}
	if full < 10 {
		t.Errorf("the disk was full %d times only", full)
	}
	if steps, _, err := valueIn(s.Dir); steps != 2 || err != nil {
		t.Error(steps, err)
	}
}

// Every byte of every file is covered by a checksum or by another check.
func TestAChangedByteIsNoticed(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	path, err := written(s, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stage-0.safetensors", "stage-1.safetensors"} {
		file := filepath.Join(path, name)
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := range whole {
			changed := bytes.Clone(whole)
			changed[i] ^= 0x10
			for _, bad := range [][]byte{changed, whole[:i]} {
				if err := os.WriteFile(file, bad, 0o644); err != nil {
					t.Fatal(err)
				}
				if _, err := Open(path); err == nil || !strings.Contains(err.Error(), name) {
					t.Fatalf("byte %d of %s: %v", i, name, err)
				}
			}
		}
		if err := os.WriteFile(file, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(path); err != nil {
		t.Error(err)
	}
}

// Other checkpoints in the store's directory, here later ones of an abandoned training, are neither counted nor
// removed. A new checkpoint replaces only a checkpoint of the same step.
func TestAStoreDropsItsOwnAlone(t *testing.T) {
	dir := t.TempDir()
	abandoned := &Store{Dir: dir}
	for _, steps := range []int{2, 4, 6, 8} {
		if _, err := written(abandoned, steps, byte(steps)); err != nil {
			t.Fatal(err)
		}
	}
	from, err := Open(filepath.Join(dir, "step-00000002"))
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{Dir: dir, Keep: 2}
	if err := errors.Join(s.Continue(from), from.Close()); err != nil {
		t.Fatal(err)
	}
	for _, steps := range []int{3, 4, 5} { // the new checkpoint of step 4 replaces the abandoned training's
		if _, err := written(s, steps, 9); err != nil {
			t.Fatal(err)
		}
		if _, value, err := valueIn(filepath.Join(dir, fmt.Sprintf("step-%08d", steps))); value != 9 || err != nil {
			t.Fatalf("step %d: %d, %v", steps, value, err)
		}
	}
	want := []string{"step-00000004", "step-00000005", "step-00000006", "step-00000008"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Error(got)
	}
}

// Checkpoints that are set aside stay complete. Remove removes all checkpoints of a folder, and the folder if nothing
// else is in it.
func TestSetAside(t *testing.T) {
	s := &Store{Dir: filepath.Join(t.TempDir(), "checkpoints")}
	for _, steps := range []int{2, 4, 6} {
		if _, err := written(s, steps, byte(steps)); err != nil {
			t.Fatal(err)
		}
	}
	later, err := Later(s.Dir, 2)
	if err != nil || !slices.Equal(later, []string{"step-00000004", "step-00000006"}) {
		t.Fatal(later, err)
	}
	aside := filepath.Join(s.Dir, "..", "aside", "checkpoints")
	if err := SetAside(s.Dir, aside, later); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]int{s.Dir: 2, aside: 6} {
		if steps, value, err := valueIn(dir); steps != want || int(value) != want || err != nil {
			t.Errorf("%s: %d, %d, %v", dir, steps, value, err)
		}
	}
	if err := os.WriteFile(filepath.Join(aside, "notes"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Remove(aside), Remove(s.Dir), Remove(s.Dir)); err != nil {
		t.Fatal(err)
	}
	if got := names(t, aside); !slices.Equal(got, []string{"notes"}) {
		t.Error(got)
	}
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// The newest checkpoint is opened, or the error says what is wrong with it and names the newest complete checkpoint
// before it.
func TestADamagedNewestCheckpointIsNamed(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	for _, steps := range []int{2, 4, 6} {
		if _, err := written(s, steps, byte(steps)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		harm func(string) error
		at   string
		says []string
	}{
		{
			func(at string) error { return os.Mkdir(at, 0o755) }, "step-99999999",
			[]string{"step-99999999 has no manifest.json", "before it is DIR/step-00000006"},
		},
		{os.RemoveAll, "step-99999999", nil},
		{
			func(at string) error { return os.Truncate(filepath.Join(at, "stage-1.safetensors"), 9) }, "step-00000006",
			[]string{"step-00000006/stage-1.safetensors: 9 bytes", "before it is DIR/step-00000004"},
		},
		{
			func(at string) error { return os.Remove(filepath.Join(at, "stage-0.safetensors")) }, "step-00000004",
			[]string{"step-00000006/stage-1", "before it is DIR/step-00000002"},
		},
		{
			func(at string) error { return os.Truncate(filepath.Join(at, manifestName), 0) }, "step-00000002",
			[]string{"step-00000006/stage-1", "no checkpoint before it is whole"},
		},
	} {
		if err := c.harm(filepath.Join(s.Dir, c.at)); err != nil {
			t.Fatal(err)
		}
		from, err := Open(s.Dir)
		if c.says == nil {
			if err != nil || from.Manifest.Steps != 6 {
				t.Errorf("%v, %v", from, err)
			}
			continue
		}
		var damaged *DamagedError
		if !errors.As(err, &damaged) {
			t.Fatalf("%s: %v", c.at, err)
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), strings.ReplaceAll(says, "DIR", s.Dir)) {
				t.Errorf("%v; want %q in it", err, says)
			}
		}
	}
}
