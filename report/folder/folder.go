// Package folder keeps and reads the files of a training in its folder, part by part.
//
// A part is what one start of `train` does. It begins with step 0, or with the step of the checkpoint from which it
// resumes. It ends with the last step, or where it is stopped or killed, or where a later part resumes. The folder's
// own files belong to the newest part. Files of an earlier part keep their names and are in the folder
// parts/step-NNNNNNNN, where NNNNNNNN is the part's first step. metrics.jsonl has each step once. It and events.jsonl
// cover all parts.
//
// In: the folder, and the first step of a new part. Out: the earlier files at their new place, and a Run: all parts
// with their valid steps, and the values of every step. A file that the run did not write, for instance
// because it was killed, is nil. Refused: damaged files, by name.
//
// Steps count from 0 here, so that a part's first step equals the number of steps done before. In metrics.jsonl they
// count from 1.
//
// The starter of a part must lock the folder, call Keep, and then write the Start before any other file of the part.
package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
)

// The files of a part, and the files for all parts.
const (
	StartName     = "run.json"
	JobName       = "job.yaml"
	PlanName      = "plan.json"
	ProfileName   = "profile.json"
	ProgramName   = "program.txt"
	PredictedName = "predicted.json.gz"
	TimelineName  = "timeline.json.gz"
	ReportName    = "report.html"
	StepName      = "step.json.gz" // a single step, while the run lasts
	MetricsName   = "metrics.jsonl"
	EventsName    = "events.jsonl"
	ErrorName     = "error.json" // why the run failed
	PartsName     = "parts"      // folder of earlier parts
)

// Drawn lists the files of a part that are made from the part's other files.
var Drawn = []string{ReportName, "trace.perfetto", "trace.json"}

// Files lists the files of a part. The Start comes last: as long as it has not moved, an interrupted move can be
// repeated.
var Files = append(slices.Clone(Drawn), StepName, TimelineName, PredictedName, ProgramName, ProfileName, PlanName,
	JobName, StartName)

// StartVersion is the version of a Start's JSON form.
const StartVersion = 2

// Start describes the start of a part.
type Start struct {
	Version int       `json:"version"`
	Done    int       `json:"steps_done"` // steps done by earlier parts
	Began   time.Time `json:"began"`
	// From is the checkpoint that the part resumed from; empty: none.
	From string `json:"from,omitempty"`
	// Engine is what computes. Hosts are where it computes: one line for each group of equal hosts.
	Engine string   `json:"engine,omitempty"`
	Hosts  []string `json:"hosts,omitempty"`
}

var starts = document.Store[Start]{
	Room: "folder", Bytes: document.MaxBytes, Check: (*Start).check,
	Decode: document.Versioned("folder", StartVersion, "train writes one", (*Start).check),
}

func (s *Start) check() error {
	if s.Done < 0 {
		return fmt.Errorf("folder: steps_done is %d; it is 0 at least", s.Done)
	}
	return nil
}

// ReadStart reads the Start of the latest part of the run in the folder dir.
func ReadStart(dir string) (*Start, error) { return starts.Read(filepath.Join(dir, StartName)) }

// Write writes the Start of the part that begins in dir.
func (s *Start) Write(dir string) error {
	s.Version = StartVersion
	return starts.Write(filepath.Join(dir, StartName), s)
}

// nameOf returns the name of the folder for a part with this first step.
func nameOf(first int) string { return fmt.Sprintf("step-%08d", first) }

// kept returns the first steps of the parts in a folder, in ascending order. It ignores entries that have other names.
func kept(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("folder: %w", err)
	}
	var all []int
	for _, e := range entries {
		n, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "step-"))
		if err == nil && n >= 0 && e.IsDir() && e.Name() == nameOf(n) {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// Readable returns an error if Keep cannot find out with which step the present part of dir began.
func Readable(dir string) error {
	_, _, err := beginning(dir)
	return err
}

// Keep makes room in dir for a part whose first step is `first`. A part that begins with this step or with a later one
// is no longer valid: its files move to `aside`. If the present part of dir began before this step, its files move to
// the folder of earlier parts. Only its drawings move to `aside`, because they may show steps that are no longer valid.
// If `aside` is empty, parts that are no longer valid are deleted, and drawings stay with their part.
func Keep(dir string, first int, aside string) error {
	earlier, err := kept(filepath.Join(dir, PartsName))
	if err != nil {
		return err
	}
	for _, n := range earlier {
		if n < first {
			continue
		}
		from, to := filepath.Join(dir, PartsName, nameOf(n)), ""
		if aside != "" {
			to = filepath.Join(aside, PartsName, nameOf(n))
		}
		if err := errors.Join(move(from, to, Files), removeEmpty(from)); err != nil {
			return err
		}
	}
	began, there, err := beginning(dir)
	switch {
	case err != nil:
		return err
	case !there:
		return nil
	case began >= first:
		return move(dir, aside, Files)
	}
	if aside != "" {
		if err := move(dir, aside, Drawn); err != nil {
			return err
		}
	}
	return move(dir, filepath.Join(dir, PartsName, nameOf(began)), Files)
}

// Remove deletes the earlier parts of dir, but no other files.
func Remove(dir string) error {
	earlier, err := kept(filepath.Join(dir, PartsName))
	for _, n := range earlier {
		part := filepath.Join(dir, PartsName, nameOf(n))
		err = errors.Join(err, move(part, "", Files), removeEmpty(part))
	}
	return errors.Join(err, removeEmpty(filepath.Join(dir, PartsName)))
}

// move moves the files with these names from one folder to another. It skips files that do not exist. If `to` is empty,
// it deletes the files.
func move(from, to string, names []string) error {
	for _, name := range names {
		at := filepath.Join(from, name)
		if _, err := os.Lstat(at); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var err error
		if to == "" {
			err = os.Remove(at)
		} else if err = os.MkdirAll(to, 0o755); err == nil {
			err = os.Rename(at, filepath.Join(to, name))
		}
		if err != nil {
			return fmt.Errorf("folder: %w", err)
		}
	}
	return nil
}

func removeEmpty(dir string) error {
	left, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
		return nil
	}
	if err == nil {
		err = os.Remove(dir)
	}
	if err != nil {
		return fmt.Errorf("folder: %w", err)
	}
	return nil
}
