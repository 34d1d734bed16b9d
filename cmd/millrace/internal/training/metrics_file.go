package training

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/millrace-ml/millrace/internal/document"
)

// openMetrics opens a file of metrics for the steps from the given one on. Lines that an earlier run
// left about these steps, which it did and did not save, go: every step stands there once. So do
// a last line that was cut short and, where the step before is evaluated again, its evaluation.
func openMetrics(path string, from int, evaluates bool) (*os.File, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	kept := metricsBefore(text, from, evaluates)
	if len(kept) < len(text) {
		err := document.Write(path, func(w io.Writer) error {
			_, err := w.Write(kept)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}

// metricsBefore is the whole lines of text that are about steps below from, without the evaluation of the
// last of them where that comes again.
func metricsBefore(text []byte, from int, evaluates bool) (kept []byte) {
	for line := range bytes.Lines(text) {
		var at struct {
			Step       *int     `json:"step"`
			Evaluation *float64 `json:"evaluation_loss"`
		}
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &at) != nil || at.Step == nil ||
			*at.Step >= from {
			continue
		}
		if evaluates && *at.Step == from-1 && at.Evaluation != nil {
			continue
		}
		kept = append(kept, line...)
	}
	return kept
}
