package slow

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/millrace-ml/millrace/internal/document"
)

// version is of the file of results.
const version = 1

// Results are cells, and where they were measured.
type Results struct {
	Version   int    `json:"version"`
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	Torch     string `json:"torch"` // PyTorch's version
	Cells     []Cell `json:"cells"`
}

// Read reads a file of results; one that is not there has none.
func Read(path string) (*Results, error) {
	r := &Results{Version: version}
	text, err := document.Read(path, document.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("slow: %w", err)
	}
	if err := document.Decode(text, version, r); err != nil {
		return nil, fmt.Errorf("slow: %s: %w", path, err)
	}
	for i := range r.Cells {
		if lacks := r.Cells[i].lacks(); lacks != "" {
			return nil, fmt.Errorf("slow: %s: cells[%d], %s, lacks %s", path, i, r.Cells[i].Name(), lacks)
		}
	}
	return r, nil
}

// Put adds a cell, in the place of one of the same model, hosts and rate.
func (r *Results) Put(c Cell) {
	r.Cells = slices.DeleteFunc(r.Cells, func(o Cell) bool {
		return o.Model == c.Model && o.Hosts == c.Hosts && o.BitsPerSecond == c.BitsPerSecond
	})
	r.Cells = append(r.Cells, c)
	at := func(c Cell) int {
		return slices.IndexFunc(Workloads, func(w Workload) bool { return w.Name == c.Model })
	}
	slices.SortFunc(r.Cells, func(a, b Cell) int {
		return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.Hosts, b.Hosts), cmp.Compare(a.BitsPerSecond, b.BitsPerSecond))
	})
}

// Broken says of each cell that breaks what was promised how; it is nil where all keep it.
func (r *Results) Broken() error {
	var all []error
	for i := range r.Cells {
		if how := r.Cells[i].Broken(); how != "" {
			all = append(all, fmt.Errorf("slow: %s", how))
		}
	}
	return errors.Join(all...)
}

// Write writes the file.
func (r *Results) Write(path string) error { return document.WriteJSON(path, r) }
