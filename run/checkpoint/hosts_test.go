package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// hosts are processes with a folder each.
type hosts struct {
	dirs    []string
	checked []int // by process: how many files were compared with their checksums
	joined  int   // how many of the last processes are not asked which checkpoints they have
}

func (h *hosts) Look() ([]Survey, error) {
	var all []Survey
	for i, dir := range h.dirs {
		s, err := NewShelf(dir).Look()
		if err != nil {
			return nil, err
		}
		if s.Host = fmt.Sprintf("host%d", i); i >= len(h.dirs)-h.joined {
			s.Copies = nil
		}
		all = append(all, s)
	}
	return all, nil
}

func (h *hosts) Text(rank int, of Copy) (string, error) { return NewShelf(h.dirs[rank]).Text(of) }

func (h *hosts) Check(steps int, files map[int][]File) (map[int]map[string]Verdict, error) {
	if h.checked == nil {
		h.checked = make([]int, len(h.dirs))
	}
	all := map[int]map[string]Verdict{}
	for rank, files := range files {
		h.checked[rank] += len(files)
		shelf := NewShelf(h.dirs[rank])
		var err error
		if all[rank], err = shelf.Check(context.Background(), steps, files); err != nil {
			return nil, err
		}
		if err := shelf.Close(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// spread writes a checkpoint with one stage in each folder. Only the folders whose index is in `committed` get the
// manifest.
func spread(t *testing.T, dirs []string, steps int, committed ...int) {
	t.Helper()
	spreadOf(t, manifest(steps), dirs, committed...)
}

func spreadOf(t *testing.T, of Manifest, dirs []string, committed ...int) {
	t.Helper()
	var files []File
	steps, draft := of.Steps, DraftName(of.Steps, 5)
	for i, dir := range dirs {
		at := filepath.Join(dir, draft)
		if err := MakeDraft(at); err != nil {
			t.Fatal(err)
		}
		f, err := WriteFile(at, fmt.Sprintf("stage-%d.safetensors", i), tensors(byte(i), byte(steps)))
		if err != nil {
			t.Fatal(err)
		}
		f.Host = fmt.Sprintf("host%d", i)
		files = append(files, f)
	}
	text, err := Seal(of, files)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range committed {
		if _, err := (&Store{Dir: dirs[i]}).Commit(draft, text); err != nil {
			t.Fatal(err)
		}
	}
}

func folders(t *testing.T, n int) []string {
	root := t.TempDir()
	var dirs []string
	for i := range n {
		dirs = append(dirs, filepath.Join(root, fmt.Sprint(i)))
	}
	return dirs
}

// open opens a spread checkpoint on one host. It returns the number of connections to each process.
func (h *hosts) open(t *testing.T, s *Spread, on int) (*Checkpoint, []int) {
	t.Helper()
	var shelves []*Shelf
	for _, dir := range h.dirs {
		shelf := NewShelf(dir)
		if _, _, err := shelf.Take(s); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { shelf.Close() })
		shelves = append(shelves, shelf)
	}
	dialled := make([]int, len(h.dirs))
	c, err := shelves[on].Open(s, on, func(process int) (io.ReadWriteCloser, error) {
		dialled[process]++
		here, there := net.Pipe()
		go shelves[process].Serve(there)
		return here, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, dialled
}

// read opens a spread checkpoint on one host and reads a tensor of each stage.
func (h *hosts) read(t *testing.T, s *Spread, on int) ([]byte, error) {
	t.Helper()
	c, _ := h.open(t, s, on)
	defer c.Close()
	var values []byte
	for i := range 2 {
		x, err := c.Tensor(fmt.Sprintf("layer%d.weight", i))
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(x.Data, bytes.Repeat(x.Data[:1], 12)) {
			t.Errorf("layer %d is %v", i, x.Data)
		}
		values = append(values, x.Data[0])
	}
	return values, nil
}

func remove(t *testing.T, dir, pattern string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if err := os.RemoveAll(all[0]); err != nil {
		t.Fatal(err)
	}
}

func cut(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Truncate(filepath.Join(dir, name), 20); err != nil {
		t.Fatal(err)
	}
}

// flip changes a byte of a file's data.
func flip(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-1] ^= 1
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
