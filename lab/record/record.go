// Package record is the form of the files in lab/results: what was measured, where, when, from which commit and by
// which command.
//
// In goes what a benchmark found, a value that embeds [Head] and counts its medians and intervals itself
// ([Results]); out comes a JSON file, and the value again when it is read. Refused: a file of another version or of
// another benchmark, unknown fields, a head that lacks something, and medians or intervals that are not those of the
// single measurements beside them. A result of which nobody kept these says so in carried_over and has none.
//
// Whoever measures calls [Begin] before it does, and [Head.End] behind it. What is not known is the word "unknown",
// or 0 cores.
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

// Version is that of the files.
const Version = 2

// Confidence is that of every interval, at least.
const Confidence = 0.95

// Unknown stands where a head cannot say something.
const Unknown = "unknown"

// Head is what every file says first.
type Head struct {
	Version int     `json:"version"`
	Bench   string  `json:"bench"` // the benchmark, which says what else is in the file
	What    string  `json:"what"`  // what was measured, in words
	Machine Machine `json:"machine"`
	// Commit is what the program was built from; "+" behind it: with changes.
	Commit  string  `json:"commit"`
	Command string  `json:"command"` // as a shell takes it
	TookS   float64 `json:"took_s"`  // seconds; 0: not known
	// CarriedOver says where medians and intervals come from whose single measurements were not kept; empty: they
	// stand beside them.
	CarriedOver string `json:"carried_over,omitempty"`

	began time.Time
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

// Begin is the head of a benchmark that begins now, in this process.
func Begin(bench, what string) Head {
	return Head{Version: Version, Bench: bench, What: what, Machine: ThisMachine(), Commit: commit(),
		Command: commandLine(os.Args), began: time.Now()}
}

// End says that the benchmark has ended.
func (h *Head) End() { h.TookS = time.Since(h.began).Seconds() }

// Carried says whether single measurements were not kept.
func (h *Head) Carried() bool { return h.CarriedOver != "" }

// head is the head itself, also of a value that embeds it.
func (h *Head) head() *Head { return h }

// check refuses a head that lacks something.
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

// Median refuses a median that is not the one of the values, and an interval that is not theirs. The zero value is no
// interval: of too few values there is none, and a file then leaves it out.
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

// Value refuses a value that is not what it was counted to be anew; name is its field.
func (h *Head) Value(name string, is, counted float64) error {
	if h.Carried() || near(is, counted) {
		return nil
	}
	return fmt.Errorf("%s is %v; by the single measurements it is %v", name, is, counted)
}

// near says whether two numbers are equal but for how they were rounded.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }

func finite(values ...float64) bool {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// Results is what a benchmark leaves: a struct that embeds a Head.
type Results interface {
	head() *Head
	// Kind is the Bench of the Head.
	Kind() string
	// Recount refuses medians, intervals and other sums that the single measurements do not give.
	Recount() error
}

// Write writes results to a file, in a folder that is made where it is not there; an empty path names none.
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

// BenchOf is the benchmark of a file of results.
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
