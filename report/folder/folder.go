// Package folder keeps and reads what a training leaves in its folder, part by part.
//
// A part is what one start of `train` does: it begins with a step, 0 or that of the checkpoint it goes on from, and
// ends with the last step, where it is stopped or killed, or where a later part goes on. The folder's own files are
// those of the newest part. Those of an earlier one are in parts/step-NNNNNNNN, by the step it began with, under the
// same names. Of metrics.jsonl, in which every step stands once, and events.jsonl there is one for all parts.
//
// In: the folder, and the step that a new part begins with. Out: the earlier files where they are kept, and a Run: all
// parts with the steps that count, and the values of every step. A file that is not there is nil, since a run may have
// been killed before it wrote one. Refused: files that are damaged, by name.
//
// Steps count from 0 here, so that a part begins with the step that is called by how many are done; in metrics.jsonl
// they count from 1.
//
// Whoever starts a part holds the folder, calls Keep, then writes the Start, before any other file of the part.
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

// The files of a part, and those of all parts.
const (
	StartName     = "run.json"
	JobName       = "job.yaml"
	PlanName      = "plan.json"
	ProfileName   = "profile.json"
	ProgramName   = "program.txt"
	PredictedName = "predicted.json.gz"
	TimelineName  = "timeline.json.gz"
	ReportName    = "report.html"
	StepName      = "step.json.gz" // of a step, while the run lasts
	MetricsName   = "metrics.jsonl"
	EventsName    = "events.jsonl"
	PartsName     = "parts" // the folder of earlier parts
)

// Drawn is the files of a part that are made of the others.
var Drawn = []string{ReportName, "trace.perfetto", "trace.json"}

// Files is the files of a part. The Start comes last: a moving of them that is cut short is done again.
var Files = append(slices.Clone(Drawn), StepName, TimelineName, PredictedName, ProgramName, ProfileName, PlanName,
	JobName, StartName)

// StartVersion is the version of a Start's JSON form.
const StartVersion = 2

// Start says how a part began.
type Start struct {
	Version int       `json:"version"`
	Done    int       `json:"steps_done"` // by the parts before
	Began   time.Time `json:"began"`
	// From is the checkpoint that it went on from; empty: none.
	From string `json:"from,omitempty"`
	// Engine computes, on these Hosts: a line for each, or for those that are alike.
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

// Write writes the Start of the part that begins in dir.
func (s *Start) Write(dir string) error {
	s.Version = StartVersion
	return starts.Write(filepath.Join(dir, StartName), s)
}

// nameOf is the folder of the part that began with a step.
func nameOf(first int) string { return fmt.Sprintf("step-%08d", first) }

// kept is the first steps of the parts in a folder of them, in ascending order. Other names are nobody's.
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

// Readable says why a part that begins in dir could not keep the one that is there; nil: it can.
func Readable(dir string) error {
	_, _, err := beginning(dir)
	return err
}

// Keep makes room in dir for a part that begins with a step: the files of the part that is there go to where earlier
// ones are kept. Parts that begin with this step or a later one count no more. They go to aside, where one is named,
// what is drawn of the steps that the part leaves of the one before included; else they are deleted.
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

// Remove deletes the earlier parts that dir has, and leaves what is no file of a part.
func Remove(dir string) error {
	earlier, err := kept(filepath.Join(dir, PartsName))
	for _, n := range earlier {
		part := filepath.Join(dir, PartsName, nameOf(n))
		err = errors.Join(err, move(part, "", Files), removeEmpty(part))
	}
	return errors.Join(err, removeEmpty(filepath.Join(dir, PartsName)))
}

// move moves those of these files that are there; to an empty name, it deletes them.
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

// removeEmpty deletes a folder that has nothing in it.
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
