package versus

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/processor"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report"
)

// Version is of the files of results.
const Version = 1

// Results is what a campaign found, as it stands in lab/results.
type Results struct {
	Version int      `json:"version"`
	What    string   `json:"what"` // what was compared
	Machine Machine  `json:"machine"`
	Old     *Build   `json:"old"`
	New     *Build   `json:"new"`
	TookS   float64  `json:"took_s"` // the campaign
	Rows    []Row    `json:"rows,omitempty"`
	Splits  []Splits `json:"splits,omitempty"`
}

// Machine is where it was measured.
type Machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	Kernel    string `json:"kernel"`
	Load      string `json:"load"` // of the last 1, 5 and 15 minutes before the start
	Date      string `json:"date"`
}

// ThisMachine is the machine as it is now.
func ThisMachine() Machine {
	m := Machine{Processor: processor.Name(), Cores: runtime.NumCPU(), Date: time.Now().UTC().Format(time.DateOnly)}
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease") // what a system does not say is left out
	m.Kernel = strings.TrimSpace(string(text))
	text, _ = os.ReadFile("/proc/loadavg")
	if words := strings.Fields(string(text)); len(words) > 2 {
		m.Load = strings.Join(words[:3], " ")
	}
	return m
}

// Write writes results to a file.
func (r *Results) Write(path string) error { return document.WriteJSON(path, r) }

// Read reads a file of results.
func Read(path string) (*Results, error) {
	text, err := document.Read(path, document.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("versus: %w", err)
	}
	r := &Results{}
	if err := document.Decode(text, Version, r); err != nil {
		return nil, fmt.Errorf("versus: %s: %w", path, err)
	}
	return r, nil
}

// Markdown writes the results as BENCHMARKS.md has them.
func (r *Results) Markdown(w io.Writer) error {
	fmt.Fprintf(w, "%s, on %s (%d cores), load %s, in %s.\n", r.What, r.Machine.Processor, r.Machine.Cores, r.Machine.Load,
		terminal.Duration(r.TookS))
	if len(r.Rows) > 0 {
		t := report.Table{Head: []string{"what", " pairs", " " + r.Old.called("old"), " " + r.New.called("new"),
			fmt.Sprintf(" speed of %s over %s", r.New.called("new"), r.Old.called("old")), " 95 % interval",
			"slower than allowed"}}
		for _, row := range r.Rows {
			slower := "stated only"
			if row.Limit > 0 {
				slower = fmt.Sprintf("no (%.2f)", row.Limit)
			}
			if row.Slower {
				slower = fmt.Sprintf("yes (%.2f)", row.Limit)
			}
			t.Add(row.Name, len(row.OldS), terminal.Duration(row.OldMedianS), terminal.Duration(row.NewMedianS),
				fmt.Sprintf("%.3f", row.Speed), fmt.Sprintf("%.3f to %.3f", row.Interval.Lo, row.Interval.Hi), slower)
		}
		fmt.Fprintln(w)
		if err := t.Markdown(w); err != nil {
			return err
		}
	}
	if len(r.Splits) == 0 {
		return nil
	}
	t := report.Table{Head: []string{"model", "build", " splits", " measured over predicted", " quartiles",
		" step off: median", " worst", " correlation"}}
	for _, s := range r.Splits {
		t.Add(s.Model, s.Build, len(s.Plans), fmt.Sprintf("%.3f", s.Ratio), fmt.Sprintf("%.3f to %.3f", s.Lower, s.Upper),
			fmt.Sprintf("%.1f %%", 100*s.OffMedian), fmt.Sprintf("%.1f %%", 100*s.OffWorst), fmt.Sprintf("%.3f", s.Correlation))
	}
	fmt.Fprintln(w)
	return t.Markdown(w)
}
