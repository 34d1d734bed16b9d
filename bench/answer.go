package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// longestVisit is beyond any measurement; it keeps a nonsense figure from overflowing
// a Duration.
const longestVisit = 24 * time.Hour

// answer is a rival's reply to "step N".
type answer struct {
	work Work
	loss float64 // of the last step
}

// parseAnswer reads {"samples": n, "seconds": s, "loss": l}; other keys are ignored.
func parseAnswer(line []byte) (answer, error) {
	var fields struct {
		Samples *int     `json:"samples"`
		Seconds *float64 `json:"seconds"`
		Loss    float64  `json:"loss"`
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
	a := answer{loss: fields.Loss, work: Work{
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
