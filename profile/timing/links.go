package timing

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/profile"
)

// Links holds the measurements of the wire between workers on one kind of machine. They do not depend on the model.
type Links struct {
	Version   int               `json:"version"`
	Machine   string            `json:"machine"` // not interpreted in this package, as in a Record
	Measured  time.Time         `json:"measured,omitzero"`
	Transfer  *profile.Transfer `json:"transfer"`
	AllReduce []AllReduce       `json:"all_reduce"` // one entry for each number of workers
}

// AllReduce holds the speed at which a number of workers sum their gradients.
type AllReduce struct {
	Workers        int     `json:"workers"`
	BytesPerSecond float64 `json:"bytes_per_s"`
}

var linksFiles = document.Store[Links]{
	Room: "timing", Bytes: document.MaxBytes, Check: (*Links).validate, Missing: "it is made by the first measurement",
	Decode: document.Versioned("links of a machine", Version, "millrace profile rm removes it",
		(*Links).validate),
}

// ReadLinks reads a file of Links.
func ReadLinks(path string) (*Links, error) { return linksFiles.Read(path) }

// Write writes the Links to a file, either the whole file or nothing.
func (l *Links) Write(path string) error { return linksFiles.Write(path, l) }

func (l *Links) validate() error {
	for _, a := range l.AllReduce {
		if a.Workers < 2 || !isTime(a.BytesPerSecond) || a.BytesPerSecond == 0 {
			return fmt.Errorf("timing: %d workers sum %v bytes a second; there are 2 at least, and it is above 0", a.Workers,
				a.BytesPerSecond)
		}
	}
	return nil
}

// Between returns the costs of the wire between this many workers; nil if they have not been measured.
func (l *Links) Between(workers int) *profile.Transfer {
	for _, a := range l.AllReduce {
		if a.Workers == max(workers, 2) && l.Transfer != nil {
			t := *l.Transfer
			t.AllReduceBytesPerSecond, t.AllReduceWorkers = a.BytesPerSecond, a.Workers
			return &t
		}
	}
	return nil
}

// Measure measures those costs of the wire between this many workers that have not been measured yet. While it
// measures, it calls `doing` with a description of what it measures, because a sum over many workers takes a long time.
func (l *Links) Measure(ctx context.Context, t Timer, workers int, doing func(what string)) (err error) {
	if l.Between(workers) != nil {
		return nil
	}
	doing("messages between workers")
	if l.Transfer == nil {
		if l.Transfer, err = t.Transfer(ctx); err != nil {
			return fmt.Errorf("profile: transfers: %w", err)
		}
	}
	rate, err := t.AllReduce(ctx, max(workers, 2), func(s Summing) {
		far := "spreading the sums"
		if s.Pairs < s.Each {
			far = fmt.Sprintf("%s of %s pairs of workers", terminal.Whole(s.Pairs), terminal.Whole(s.Each))
		}
		doing(fmt.Sprintf("all-reduce %d of %d, %s", s.Sum, s.Of, far))
	})
	if err != nil {
		return fmt.Errorf("profile: all-reduce: %w", err)
	}
	l.AllReduce, l.Measured = append(l.AllReduce, AllReduce{max(workers, 2), rate}), time.Now().UTC().Round(0)
	return nil
}
