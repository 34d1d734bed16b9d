package race

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// longestVisit is longer than any real visit. A longer time is refused, because it could overflow a Duration.
const longestVisit = 24 * time.Hour

// answer is a rival's reply to "step N".
type answer struct {
	work Work
	loss float64 // of the last step

	stepS     float64   // median step of the visit; 0: unknown
	peakBytes []int64   // by worker, so far; nil: unknown
	busy      float64   // fraction of the time in which workers computed, as a mean over workers; 0: unknown
	busyS     []float64 // each worker's computing time in a step; nil: unknown
	takenBack int       // how often updates of the visit were taken back
}

// parseAnswer reads {"samples": n, "seconds": s, "loss": l}. A session of millrace adds "step_s", "peak_bytes",
// "busy", "busy_s" and "taken_back"; other keys are ignored.
func parseAnswer(line []byte) (answer, error) {
	var fields struct {
		Samples *int      `json:"samples"`
		Seconds *float64  `json:"seconds"`
		Loss    float64   `json:"loss"`
		StepS   float64   `json:"step_s"`
		Peak    []int64   `json:"peak_bytes"`
		Busy    float64   `json:"busy"`
		BusyS   []float64 `json:"busy_s"`
		Back    int       `json:"taken_back"`
	}
	if err := parseLine(line, &fields); err != nil {
		return answer{}, err
	}
	if fields.Samples == nil || fields.Seconds == nil {
		return answer{}, errors.New("its answer to \"step\" lacks samples or seconds")
	}
	if s := *fields.Seconds; s < 0 || s > longestVisit.Seconds() {
		return answer{}, fmt.Errorf("it says that a visit took %g seconds; up to a day can be right", s)
	}
	a := answer{loss: fields.Loss, stepS: fields.StepS, peakBytes: fields.Peak, busy: fields.Busy, busyS: fields.BusyS,
		takenBack: fields.Back, work: Work{
			Samples: *fields.Samples, Time: time.Duration(*fields.Seconds * float64(time.Second)),
		}}
	return a, a.work.check()
}

func parseLine(line []byte, v any) error {
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("it answers %q, which is not the JSON of its protocol: %w", line, err)
	}
	return nil
}
