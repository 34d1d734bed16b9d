package slow

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/millrace-ml/millrace/lab/record"
)

// Results has cells and the head of the measurement.
type Results struct {
	record.Head        // head of the last command that measured cells
	Torch       string `json:"torch"` // PyTorch's version
	Cells       []Cell `json:"cells"`
}

// Kind returns "slow", the Head's Bench.
func (r *Results) Kind() string { return "slow" }

// Recount refuses incomplete cells, and medians and intervals that do not follow from the rounds.
func (r *Results) Recount() (wrong error) {
	for i := range r.Cells {
		c := &r.Cells[i]
		if lacks := c.lacks(); lacks != "" {
			return fmt.Errorf("cells[%d], %s, lacks %s", i, c.Name(), lacks)
		}
		for _, run := range c.Runs[1:] {
			wrong = errors.Join(wrong, r.Median(c.Name()+": ratio of "+run.Name, run.Ratios, run.Ratio, run.Interval))
		}
	}
	return wrong
}

// Read reads a file of results. If the file is missing, it returns Results without cells.
func Read(path string) (*Results, error) {
	r, err := record.Read[Results](path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Results{}, nil
	}
	return r, err
}

// Put adds a cell, or replaces the cell with the same model, hosts and rate.
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

// Broken returns an error for each cell that breaks the promise; nil if there is none.
func (r *Results) Broken() error {
	var all []error
	for i := range r.Cells {
		if how := r.Cells[i].Broken(); how != "" {
			all = append(all, fmt.Errorf("slow: %s", how))
		}
	}
	return errors.Join(all...)
}
