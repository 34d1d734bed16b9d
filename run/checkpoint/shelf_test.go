package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// large is the size of a sparse file: reading it takes long, but it uses no disk space.
const large = 16 << 30

// holed returns the Shelf of a checkpoint with one stage, and a large sparse file. The file is in the checkpoint's
// directory and in a draft of the checkpoint.
func holed(t *testing.T) (*Shelf, File) {
	t.Helper()
	s, dir := shelf(t)
	f := File{Name: "stage-2.safetensors", Bytes: large, CRC32C: "00000001"}
	for _, in := range []string{NameOf(2), DraftName(2, 9)} {
		at := filepath.Join(dir, in, f.Name)
		if err := MakeDraft(filepath.Dir(at)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(at, large); err != nil {
			t.Skip("no large files here: ", err)
		}
	}
	s.manifest.Files = append(s.manifest.Files, f)
	return s, f
}

// begun waits until Moved has changed from `since`, so that something has been read.
func begun(t *testing.T, since int64) {
	t.Helper()
	for until := time.Now().Add(time.Minute); Moved() == since; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("nothing is read")
		}
	}
}

// Comparing a large file with its checksum stops when its context ends or the Shelf is closed.
func TestACheckEndsInTheMiddle(t *testing.T) {
	for name, c := range map[string]struct {
		check func(ctx context.Context, s *Shelf, f File) error
		ends  string
	}{
		"with its context": {func(ctx context.Context, s *Shelf, f File) error {
			_, err := s.Check(ctx, 2, []File{f})
			return err
		}, "the leader is lost"},
		"with its Shelf": {func(_ context.Context, s *Shelf, f File) error {
			r := ask(s)
			r.ctx = context.Background() // the remote's own context does not end
			return r.read(request{File: f.Name, Bytes: 1}, make([]byte, 1))
		}, errEnded.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := holed(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			done, before := make(chan error, 1), Moved()
			go func() { done <- c.check(ctx, s, f) }()
			begun(t, before)
			if cancel(errors.New("the leader is lost")); c.ends == errEnded.Error() {
				s.Close()
			}
			if err := <-done; err == nil || !strings.Contains(err.Error(), c.ends) {
				t.Errorf("%v; want something about %q", err, c.ends)
			}
			if read := Moved() - before; read > large/2 {
				t.Errorf("%d bytes of %d are read", read, int64(large))
			}
		})
	}
}

// While a process compares copies of a large file with its checksum, other processes can read another file from it.
func TestALargeFileIsInNobodysWay(t *testing.T) {
	s, f := holed(t)
	ctx, cancel := context.WithCancel(t.Context())
	done, before := make(chan error, 1), Moved()
	go func() {
		_, err := s.Check(ctx, 2, []File{f})
		done <- err
	}()
	begun(t, before)
	if err := ask(s).read(request{File: "stage-0.safetensors", Bytes: 4}, make([]byte, 4)); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// If the context has ended, Check returns the context's cause and no verdicts. The same Shelf checks a file only once.
func TestACheckIsMadeOnce(t *testing.T) {
	dirs := folders(t, 1)
	spread(t, dirs, 2, 0)
	h := &hosts{dirs: dirs}
	s, err := Among(dirs[0], h)
	if err != nil {
		t.Fatal(err)
	}
	shelf := NewShelf(dirs[0])
	defer shelf.Close()
	_, m, err := shelf.Take(s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the leader is lost")
	cancel(why)
	if _, err := shelf.Check(ctx, 2, m.Files); !errors.Is(err, why) {
		t.Error(err)
	}
	check := func(shelf *Shelf) string {
		v, err := shelf.Check(t.Context(), 2, m.Files)
		if err != nil {
			t.Fatal(err)
		}
		return v["stage-0.safetensors"].Wrong
	}
	if wrong := check(shelf); wrong != "" {
		t.Error(wrong)
	}
	flip(t, filepath.Join(dirs[0], "step-00000002", "stage-0.safetensors"))
	if wrong := check(shelf); wrong != "" {
		t.Error("it is read again: ", wrong)
	}
	other := NewShelf(dirs[0])
	defer other.Close()
	if wrong := check(other); wrong == "" {
		t.Error("nothing is read")
	}
}

// A process connects only to the processes whose files it needs. After Close no tensor can be read.
func TestOnlyWhoIsNeededIsDialled(t *testing.T) {
	h := &hosts{dirs: folders(t, 3)}
	spread(t, h.dirs[:2], 2, 0, 1)
	s, err := Among(h.dirs[0], h)
	if err != nil {
		t.Fatal(err)
	}
	c, dialled := h.open(t, s, 2)
	if got := c.Names(); len(got) != 4 || slices.Max(dialled) != 0 {
		t.Errorf("%v, with %v dialled", got, dialled)
	}
	if _, err := c.Tensor("layer1.weight"); err != nil || !slices.Equal(dialled, []int{0, 1, 0}) {
		t.Errorf("%v, with %v dialled", err, dialled)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if _, err := c.Tensor("layer0.weight"); !errors.Is(err, errEnded) {
		t.Error(err)
	}
}

// If a host's path is a run's folder, it is taken as the path of the checkpoints in that folder.
func TestARunsFolderStandsForItsCheckpoints(t *testing.T) {
	run := t.TempDir()
	spread(t, []string{filepath.Join(run, "checkpoints")}, 2, 0)
	h := &hosts{dirs: []string{filepath.Join(t.TempDir(), "new"), run}}
	s, err := Among(h.dirs[0], h)
	if err != nil {
		t.Fatal(err)
	}
	shelf := NewShelf(run)
	if path, _, err := shelf.Take(s); err != nil || path != filepath.Join(run, "checkpoints", "step-00000002") {
		t.Error(path, err)
	}
}

// crowd is a group of processes that all share one folder.
type crowd struct {
	hosts
	n, text int
}

func (c *crowd) Look() ([]Survey, error) {
	one, err := c.hosts.Look()
	return slices.Repeat(one, c.n), err
}

func (c *crowd) Text(_ int, of Copy) (string, error) {
	c.text++
	return c.hosts.Text(0, of)
}

func (c *crowd) Check(steps int, files map[int][]File) (map[int]map[string]Verdict, error) {
	all := map[int]map[string]Verdict{}
	for rank, files := range files {
		if len(files) > 1 {
			return nil, fmt.Errorf("process %d is to check %d files", rank, len(files))
		}
		one, err := c.hosts.Check(steps, map[int][]File{0: files})
		if err != nil {
			return nil, err
		}
		all[rank] = one[0]
	}
	return all, nil
}

// If 1024 processes share a folder, each checks one file, and Among ends within 10 s.
func TestManyProcessesShareTheChecks(t *testing.T) {
	const n = 1024
	dir := t.TempDir()
	c := &crowd{hosts: hosts{dirs: []string{dir}}, n: n}
	draft := DraftName(2, 5)
	at := filepath.Join(dir, draft)
	if err := MakeDraft(at); err != nil {
		t.Fatal(err)
	}
	f, err := WriteFile(at, "stage-0.safetensors", tensors(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	files := []File{f}
	for i := 1; i < n; i++ { // all are links to one file, because the content does not matter
		f.Name = fmt.Sprintf("stage-%d.safetensors", i)
		if err := os.Link(filepath.Join(at, "stage-0.safetensors"), filepath.Join(at, f.Name)); err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	text, err := Seal(manifest(2), files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&Store{Dir: dir}).Commit(draft, text); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s, err := Among(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%v", took)
	}
	if len(s.Where) != n || len(s.Tensors) != n || c.text != 1 {
		t.Errorf("%d files, %d with tensors, %d manifests", len(s.Where), len(s.Tensors), c.text)
	}
}
