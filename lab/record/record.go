// Package record defines the form of the files in lab/results. They say what was measured, where, when, from which
// commit and by which command.
//
// In: the results of a benchmark, a value that embeds [Head] and computes its own medians and intervals ([Results]).
// Out: a JSON file, and the same value when the file is read. Refused: a file of another version or benchmark,
// unknown fields, an incomplete head, and medians or intervals that do not follow from the single measurements in
// the file. If the single measurements were not kept, carried_over says so.
//
// A benchmark calls [Begin] before it measures, and [Head.End] after. A value that is not known is the word
// "unknown", or 0 cores.
package record

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/processor"
	"github.com/millrace-ml/millrace/internal/stats"
)

// Version is the version of the files.
const Version = 2

// Confidence is the minimal confidence of every interval.
const Confidence = 0.95

// Unknown replaces a text that is not known.
const Unknown = "unknown"

// Head is the beginning of every file.
type Head struct {
	Version int     `json:"version"`
	Bench   string  `json:"bench"` // the benchmark, which decides the rest of the file
	What    string  `json:"what"`  // what was measured, in words
	Machine Machine `json:"machine"`
	// Commit is the commit the program was built from. A "+" at its end means that files were changed.
	Commit  string  `json:"commit"`
	Command string  `json:"command"` // as typed in a shell
	TookS   float64 `json:"took_s"`  // seconds; 0: not known
	// CarriedOver says where medians and intervals without single measurements come from. It is empty if the file has
	// the single measurements.
	CarriedOver string `json:"carried_over,omitempty"`

	began time.Time
}

// Machine is the machine of the measurement.
type Machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	Kernel    string `json:"kernel"`
	Load      string `json:"load"` // average over the last 1, 5 and 15 minutes before the start
	Date      string `json:"date"`
}

// ThisMachine returns the machine as it is now.
func ThisMachine() Machine {
	m := Machine{Processor: processor.Name(), Cores: runtime.NumCPU(), Date: time.Now().UTC().Format(time.DateOnly)}
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease") // missing values are left out
	m.Kernel = strings.TrimSpace(string(text))
	text, _ = os.ReadFile("/proc/loadavg")
	if words := strings.Fields(string(text)); len(words) > 2 {
		m.Load = strings.Join(words[:3], " ")
	}
	return m
}

// Begin returns the head of a benchmark that begins now in this process.
func Begin(bench, what string) Head {
	return Head{Version: Version, Bench: bench, What: what, Machine: ThisMachine(), Commit: commit(),
		Command: commandLine(os.Args), began: time.Now()}
}

// End records that the benchmark has ended.
func (h *Head) End() { h.TookS = time.Since(h.began).Seconds() }

// Carried reports whether the results were carried over without their single measurements.
func (h *Head) Carried() bool { return h.CarriedOver != "" }

// head returns the Head; a value that embeds a Head inherits this method.
func (h *Head) head() *Head { return h }

// check returns an error if the head is incomplete or belongs to another benchmark.
func (h *Head) check(bench string) error {
	if h.Bench != bench {
		return fmt.Errorf("bench is %q; this is to be %q", h.Bench, bench)
	}
	for _, field := range []struct{ name, is string }{{"what", h.What}, {"machine.processor", h.Machine.Processor},
		{"commit", h.Commit}, {"command", h.Command}} {
		if field.is == "" {
			return fmt.Errorf("%s is empty; what is not known is %q", field.name, Unknown)
		}
	}
	if _, err := time.Parse(time.DateOnly, h.Machine.Date); err != nil {
		return fmt.Errorf("machine.date is %q; a day like 2026-11-23 is right", h.Machine.Date)
	}
	if h.Machine.Cores < 0 || !(h.TookS >= 0) {
		return fmt.Errorf("machine.cores is %d and took_s %v; both are 0 or more", h.Machine.Cores, h.TookS)
	}
	return nil
}

// Median returns an error if a median or an interval does not follow from the values. A zero interval is allowed: it
// means that there is no interval, for example because there are too few values. If there are no values, the results
// must be carried over, and an interval must contain the median.
func (h *Head) Median(name string, values []float64, median float64, i stats.Interval) error {
	none := i == stats.Interval{}
	if len(values) == 0 {
		switch {
		case !h.Carried():
			return fmt.Errorf("%s has no single measurements; a file without them says in carried_over why", name)
		case !finite(median, i.Lo, i.Hi) || !none && (median < i.Lo || median > i.Hi):
			return fmt.Errorf("%s is %v, with an interval of %v to %v; the median lies inside", name, median, i.Lo, i.Hi)
		}
		return nil
	}
	if want := stats.Median(values); !near(median, want) {
		return fmt.Errorf("%s is %v; the median of its %d measurements is %v", name, median, len(values), want)
	}
	want, err := stats.MedianInterval(values, Confidence)
	switch {
	case none:
		return nil
	case err != nil:
		return fmt.Errorf("%s has an interval, %v to %v: %w", name, i.Lo, i.Hi, err)
	case !near(i.Lo, want.Lo) || !near(i.Hi, want.Hi):
		return fmt.Errorf("%s has the interval %v to %v; that of its %d measurements is %v to %v", name, i.Lo, i.Hi,
			len(values), want.Lo, want.Hi)
	}
	return nil
}

// Value returns an error if `is` differs from `counted`, which was computed from the single measurements. If the single
// measurements were not kept, it allows any value. `name` is the value's field.
func (h *Head) Value(name string, is, counted float64) error {
	if h.Carried() || near(is, counted) {
		return nil
	}
	return fmt.Errorf("%s is %v; by the single measurements it is %v", name, is, counted)
}

// near reports whether two numbers are equal except for rounding.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }

func finite(values ...float64) bool {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// Results is the result of a benchmark: a struct that embeds a Head.
type Results interface {
	head() *Head
	// Kind returns the name of the benchmark, as in Head.Bench.
	Kind() string
	// Recount returns an error for medians, intervals and sums that do not follow from the single measurements.
	Recount() error
}

// Write writes results to a file, and creates its folder if necessary. An empty path writes nothing.
func Write(path string, r Results) error {
	if path == "" {
		return nil
	}
	if err := check(r); err != nil {
		return fmt.Errorf("record: %s is not written: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return document.WriteJSON(path, r)
}

// Read reads results from a file.
func Read[T any, P interface {
	*T
	Results
}](path string) (P, error) {
	text, err := document.Read(path, document.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r, err := Decode[T, P](text)
	if err != nil {
		return nil, fmt.Errorf("record: %s: %w", path, err)
	}
	return r, nil
}

// Decode reads results from a text.
func Decode[T any, P interface {
	*T
	Results
}](text []byte) (P, error) {
	r := P(new(T))
	if err := document.Decode(text, Version, r); err != nil {
		return nil, err
	}
	if err := check(r); err != nil {
		return nil, err
	}
	return r, nil
}

func check(r Results) error {
	if err := r.head().check(r.Kind()); err != nil {
		return err
	}
	return r.Recount()
}

// BenchOf returns the benchmark of a file of results.
func BenchOf(path string) (string, error) {
	text, err := document.Read(path, document.MaxBytes)
	if err != nil {
		return "", fmt.Errorf("record: %w", err)
	}
	var head struct {
		Bench string `json:"bench"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return "", fmt.Errorf("record: %s: %w", path, err)
	}
	return head.Bench, nil
}
