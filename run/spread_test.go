package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/wire/pipe"
)

// disks are the checkpoint folders of the processes, from which they also resume.
type disks []string

func (d disks) Look() ([]checkpoint.Survey, error) {
	var all []checkpoint.Survey
	for p, dir := range d {
		s, err := checkpoint.NewShelf(dir).Look()
		if err != nil {
			return nil, err
		}
		s.Host = fmt.Sprintf("host%d", p)
		all = append(all, s)
	}
	return all, nil
}

func (d disks) Text(rank int, of checkpoint.Copy) (string, error) {
	return checkpoint.NewShelf(d[rank]).Text(of)
}

func (d disks) Check(steps int, files map[int][]checkpoint.File) (map[int]map[string]checkpoint.Verdict, error) {
	all := map[int]map[string]checkpoint.Verdict{}
	for rank, files := range files {
		shelf := checkpoint.NewShelf(d[rank])
		verdicts, err := shelf.Check(context.Background(), steps, files)
		if err := errors.Join(err, shelf.Close()); err != nil {
			return nil, err
		}
		all[rank] = verdicts
	}
	return all, nil
}

// resume makes the processes of a world resume from their disks.
func (d disks) resume(t *testing.T, w *worlds) *checkpoint.Spread {
	return d.resumeOver(t, w, func(_ int, c io.ReadWriteCloser) io.ReadWriteCloser { return c })
}

// resumeOver is like resume, over connections that `over` changes.
func (d disks) resumeOver(t *testing.T, w *worlds,
	over func(of int, c io.ReadWriteCloser) io.ReadWriteCloser) *checkpoint.Spread {
	t.Helper()
	s, err := checkpoint.Among(d[0], d)
	if err != nil {
		t.Fatal(err)
	}
	shelves := make([]*checkpoint.Shelf, len(d))
	for p, dir := range d {
		shelves[p] = checkpoint.NewShelf(dir)
		if _, _, err := shelves[p].Take(s); err != nil {
			t.Fatal(err)
		}
	}
	change := w.change
	w.change = func(p int, c *Config) {
		if change != nil {
			change(p, c)
		}
		c.Resume.At = d[p]
		var err error
		c.Resume.Open, err = shelves[p].Open(s, p, func(of int) (io.ReadWriteCloser, error) {
			here, there := net.Pipe()
			go shelves[of].Serve(there)
			return over(of, here), nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	return s
}

// fresh returns n folders.
func fresh(t *testing.T, n int) disks {
	root := t.TempDir()
	var d disks
	for p := range n {
		d = append(d, filepath.Join(root, fmt.Sprint(p)))
	}
	return d
}

// saving makes every process save to its disk.
func (d disks) saving(keep int) func(p int, c *Config) {
	return func(p int, c *Config) { c.Checkpoint = Checkpointing{Dir: d[p], Every: 2, Keep: keep} }
}

// A run that was saved to the disks of its hosts is resumed, and ends with the same bits as one that never stopped.
// Before it is resumed, hosts change places or their number changes, and the plan changes.
func TestARunGoesOnWithFilesOfSeveralHosts(t *testing.T) {
	want := train(t, small(t, 1, 7)).Weights
	for name, c := range map[string]struct {
		before, after []int // process of each worker
		moved         []int // the disk that each process has when it resumes; -1 for a new host
	}{
		"the same":                   {[]int{0, 1, 2}, []int{0, 1, 2}, []int{0, 1, 2}},
		"changed places":             {[]int{0, 1, 2}, []int{0, 1, 2}, []int{2, 0, 1}},
		"a new host leads":           {[]int{0, 1}, []int{0, 1, 2}, []int{-1, 1, 0}},
		"fewer workers":              {[]int{0, 1, 1, 2}, []int{0, 1, 2}, []int{1, 2, 0}},
		"two workers on one of them": {[]int{0, 1}, []int{0, 1, 1}, []int{1, 0}},
		"more, under another plan":   {[]int{0, 1}, []int{0, 1, 2, 2}, []int{1, 0, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			old := fresh(t, slices.Max(c.before)+1)
			w := worlds{of: c.before, carriers: pipe.New, change: old.saving(0)}
			w.train(t.Context(), t, small(t, len(c.before), 5)).whole(t)
			now := fresh(t, len(c.moved))
			for p, disk := range c.moved {
				if disk >= 0 {
					now[p] = old[disk]
				}
			}
			w = worlds{of: c.after, carriers: pipe.New, change: now.saving(2)}
			if s := now.resume(t, &w); len(s.Passed) > 0 {
				t.Error(s.Passed)
			}
			got := w.train(t.Context(), t, small(t, len(c.after), 7)).whole(t)
			if err := sameWeights(want, got.Weights); err != nil {
				t.Error(err)
			}
			for p, dir := range now { // older checkpoints are removed on every host
				there, err := os.ReadDir(dir)
				if err != nil || len(there) > 2 || there[len(there)-1].Name() != "step-00000007" {
					t.Errorf("process %d has %v, %v", p, there, err)
				}
			}
		})
	}
}

// cutOff is a Link that ends before a certain message of the leader.
type cutOff struct {
	control.Link
	at func(control.Body) bool
}

func (c cutOff) Send(m control.Message) error {
	if c.at(m.Body) {
		return c.Close()
	}
	return c.Link.Send(m)
}

// Wherever a process is lost during a save, the run is resumed from a complete checkpoint. It ends with the same bits
// as one that never stopped, and nothing half-written is left.
func TestALinkCutWhileSavingHarmsNothing(t *testing.T) {
	want := train(t, small(t, 1, 6)).Weights
	for name, c := range map[string]struct {
		at    func(control.Body) bool
		steps int
	}{
		"mark":       {func(b control.Body) bool { _, is := b.(control.Mark); return is }, 0},
		"look":       {func(b control.Body) bool { _, is := b.(control.Look); return is }, 0},
		"save":       {func(b control.Body) bool { s, is := b.(control.Save); return is && s.Base == 4 }, 2},
		"first":      {func(b control.Body) bool { s, is := b.(control.Commit); return is && at(s, 4) && !s.Others }, 4},
		"others":     {func(b control.Body) bool { s, is := b.(control.Commit); return is && at(s, 4) && s.Others }, 4},
		"next steps": {func(b control.Body) bool { l, is := b.(control.Load); return is && l.Base == 4 }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			d := fresh(t, 3)
			w := worlds{of: []int{0, 1, 2}, carriers: pipe.New, cut: func(p int, l control.Link) control.Link {
				if p == 1 {
					return cutOff{l, c.at}
				}
				return l
			}, change: d.saving(0)}
			out := w.train(t.Context(), t, small(t, 3, 6))
			for p, err := range out.errs {
				if err == nil {
					t.Errorf("process %d has noticed nothing", p)
				}
			}
			w = worlds{of: []int{0, 1, 2}, carriers: pipe.New, change: d.saving(1)}
			if c.steps > 0 {
				s := d.resume(t, &w)
				if !strings.Contains(s.Manifest, fmt.Sprintf(`"steps": %d,`, c.steps)) {
					t.Errorf("it goes on from\n%s; want step %d", s.Manifest, c.steps)
				}
			}
			got := w.train(t.Context(), t, small(t, 3, 6)).whole(t)
			if err := sameWeights(want, got.Weights); err != nil {
				t.Error(err)
			}
			for p, dir := range d {
				if there, err := os.ReadDir(dir); err != nil || len(there) != 1 {
					t.Errorf("process %d has %v, %v", p, there, err)
				}
				if aside, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "aside-*")); err != nil || len(aside) > 0 {
					t.Errorf("process %d has %v, %v", p, aside, err)
				}
			}
		})
	}
}

func at(c control.Commit, steps int) bool {
	return strings.HasPrefix(c.Draft, fmt.Sprintf("step-%08d.", steps))
}

// short is a connection that ends after this many bytes.
type short struct {
	io.ReadWriteCloser
	left int
}

func (s *short) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n, err := s.ReadWriteCloser.Read(b[:min(len(b), s.left)])
	s.left -= n
	return n, err
}

// A process that ends while others read files from it is lost. All errors name it, even if its end was not noticed
// otherwise.
func TestAProcessThatEndsWhileItsFilesAreReadIsLost(t *testing.T) {
	d := fresh(t, 2)
	w := worlds{of: []int{0, 1}, carriers: pipe.New, change: d.saving(0)}
	w.train(t.Context(), t, small(t, 2, 2)).whole(t)
	d = append(d, filepath.Join(t.TempDir(), "new"))
	for _, left := range []int{0, 10, 300} {
		w = worlds{of: []int{0, 1, 2}, carriers: pipe.New}
		d.resumeOver(t, &w, func(of int, c io.ReadWriteCloser) io.ReadWriteCloser {
			if of == 1 {
				return &short{c, left}
			}
			return c
		})
		for p, err := range w.train(t.Context(), t, small(t, 3, 4)).errs {
			var lost *control.LostError
			if !errors.As(err, &lost) || lost.Process != 1 || !strings.Contains(err.Error(),
				"rank 1 on host host1 is lost: stage-001.safetensors, which rank 1 has: ") {
				t.Errorf("behind %d bytes, process %d: %v", left, p, err)
			}
		}
	}
}

// slow is a connection on which a few bytes arrive at a time.
type slow struct {
	io.ReadWriteCloser
	few int
}

func (s slow) Read(b []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return s.ReadWriteCloser.Read(b[:min(len(b), s.few)])
}

// However long it takes to read files of another host, the reading process is not lost while bytes arrive.
func TestASlowLinkIsNotLost(t *testing.T) {
	d := fresh(t, 2)
	w := worlds{of: []int{0, 1}, carriers: pipe.New, change: d.saving(0)}
	w.train(t.Context(), t, small(t, 2, 2)).whole(t)
	file, err := os.Stat(filepath.Join(d[1], "step-00000002", "stage-001.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	d = append(d, filepath.Join(t.TempDir(), "new"))
	w = worlds{of: []int{0, 1, 2}, carriers: pipe.New}
	d.resumeOver(t, &w, func(of int, c io.ReadWriteCloser) io.ReadWriteCloser {
		return slow{c, int(file.Size()) / 50}
	})
	c := small(t, 3, 4)
	c.Watch.StallAfter = 400 * time.Millisecond
	began := time.Now()
	w.train(t.Context(), t, c).whole(t)
	if took := time.Since(began); took < 2*c.Watch.StallAfter {
		t.Errorf("it took %v, which is too short to show anything", took)
	}
}

// If a process cannot read a file from another process, the run ends, and its error names this other process.
func TestAHostThatGivesNothingEndsTheRun(t *testing.T) {
	d := fresh(t, 2)
	w := worlds{of: []int{0, 1}, carriers: pipe.New, change: d.saving(0)}
	w.train(t.Context(), t, small(t, 2, 2)).whole(t)
	w = worlds{of: []int{0, 2, 2}, carriers: pipe.New} // process 1 has the file, but does not need it
	d = append(d, filepath.Join(t.TempDir(), "new"))
	d.resume(t, &w)
	file := filepath.Join(d[1], "step-00000002", "stage-001.safetensors")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-1] ^= 1
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	said := 0
	for p, err := range w.train(t.Context(), t, small(t, 3, 4)).errs {
		switch {
		case err == nil:
			t.Errorf("process %d has noticed nothing", p)
		case strings.Contains(err.Error(), "stage-001.safetensors, which rank 1 has: checksum"):
			said++
		case !strings.Contains(err.Error(), "is lost"):
			t.Errorf("process %d: %v", p, err)
		}
	}
	if said == 0 {
		t.Error("nobody says which process has the damaged file")
	}
}

// The checkpoint to resume from is closed before the first step. Otherwise its files would use disk space after their
// removal, and block the removal on a shared folder.
func TestWhatARunGoesOnFromIsClosed(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("there is no list of open files: ", err)
	}
	d := fresh(t, 2)
	w := worlds{of: []int{0, 1}, carriers: pipe.New, change: d.saving(0)}
	w.train(t.Context(), t, small(t, 2, 2)).whole(t)
	d[0], d[1] = d[1], d[0] // so that each reads from the other
	w = worlds{of: []int{0, 1}, carriers: pipe.New, change: d.saving(1)}
	d.resume(t, &w)
	c, asked := small(t, 2, 4), 0
	c.Hooks.OnCheckpoint = func(string, int) {
		asked++
		open, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Error(err)
		}
		for _, fd := range open {
			if file, err := os.Readlink(fd); err == nil && strings.HasPrefix(file, filepath.Dir(d[0])) {
				t.Errorf("%s is open", file)
			}
		}
	}
	w.train(t.Context(), t, c).whole(t)
	if asked != 1 {
		t.Errorf("%d checkpoints", asked)
	}
}
