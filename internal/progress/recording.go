package progress

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"
)

// RecordTo is an environment variable that names a folder in which each Work records its calls. The recordings help to
// improve the estimate of the time left; see lab/left.
const RecordTo = "MILLRACE_PROGRESS"

// Event is a line of a recording: one call of a method of a Work, At seconds after the Work began.
type Event struct {
	At    float64    `json:"at"`
	Began *time.Time `json:"began,omitempty"` // time of the first call; only in the first line
	Plan  string     `json:"plan,omitempty"`  // name of the part of the work that Left belongs to
	Left  []Piece    `json:"left,omitempty"`  // Unknown is written as a Cost of -1
	Begin *Piece     `json:"begin,omitempty"`
	End   bool       `json:"end,omitempty"`
	Far   float64    `json:"far,omitempty"` // progress that the current piece reported
}

// ReadRecording reads a recording.
func ReadRecording(r io.Reader) ([]Event, error) {
	var all []Event
	for lines := json.NewDecoder(r); ; {
		var e Event
		if err := lines.Decode(&e); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("progress: event %d of a recording: %w", len(all)+1, err)
		}
		all = append(all, e)
	}
}

// Replay repeats the calls of a recording on a new Work. The recorded work took `total` seconds. At 200 points in this
// time Replay asks how much is left, and calls `said` with each answer that is Honest.
func Replay(all []Event, total float64, said func(at, left float64)) {
	var w Work
	zero := time.Unix(0, 0)
	on := func(at float64) time.Time { return zero.Add(time.Duration(at * 1e9)) }
	far, next := 0.0, 0.0
	for i, e := range all {
		switch {
		case e.Began != nil:
		case e.Begin != nil:
			p := *e.Begin
			far = 0
			p.Far = func() float64 { return far } // 0 means no report
			w.Begin(on(e.At), p)
		case e.End:
			w.End(on(e.At))
		case e.Far > 0:
			far = e.Far
		default:
			w.Plan(on(e.At), e.Plan, e.planned()...)
		}
		until := total
		if i+1 < len(all) {
			until = all[i+1].At
		}
		for ; next < until; next += total / 200 {
			if s := w.At(on(next)); s.Honest {
				said(next, s.Left.Seconds())
			}
		}
	}
}

// planned returns Left as it was given to Plan: a negative Cost becomes Unknown.
func (e *Event) planned() []Piece {
	left := slices.Clone(e.Left)
	for i := range left {
		if left[i].Cost < 0 {
			left[i].Cost = Unknown
		}
	}
	return left
}

// record records an event, if recording is on.
func (w *Work) record(at time.Time, e Event) {
	if w.recording == nil {
		return
	}
	e.At = math.Round(1e4*at.Sub(w.began).Seconds()) / 1e4
	for i := range e.Left {
		if math.IsInf(e.Left[i].Cost, 1) {
			e.Left[i].Cost = -1
		}
	}
	_ = w.recording.Encode(e) // a failed recording must not disturb the work
}

// startRecording creates a file if RecordTo is set.
func (w *Work) startRecording() {
	dir := os.Getenv(RecordTo)
	if dir == "" {
		return
	}
	if f, err := os.CreateTemp(dir, fmt.Sprintf("%d-*.jsonl", os.Getpid())); err == nil {
		w.recording = json.NewEncoder(f)
		w.record(w.began, Event{Began: &w.began})
	}
}
