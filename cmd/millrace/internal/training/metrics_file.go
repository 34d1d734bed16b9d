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

// openMetrics opens a metrics file to continue it after `done` steps. It removes lines about later steps, so that every
// step occurs once. It also removes lines that no run has written, and an incomplete last line. If the last step is
// evaluated again, it removes that step's evaluation.
func openMetrics(path string, done int, evaluates bool) (*os.File, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	kept := metricsUpTo(text, done, evaluates)
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

// metricsUpTo returns the whole lines of text about the first `done` steps; steps count from 1. It leaves out the
// evaluation of the last step if `evaluates` is set.
func metricsUpTo(text []byte, done int, evaluates bool) (kept []byte) {
	for line := range bytes.Lines(text) {
		of, is := ofStep(line)
		if !is || !bytes.HasSuffix(line, []byte("\n")) || of.Step > done ||
			evaluates && of.Step == done && of.Evaluation != nil {
			continue
		}
		kept = append(kept, line...)
	}
	return kept
}

// metric holds the parts of a metrics line that say what it is about.
type metric struct {
	Step       int      `json:"step"`
	Evaluation *float64 `json:"evaluation_loss"`
}

// ofStep parses a metrics line; it returns false if no run has written the line.
func ofStep(line []byte) (of metric, is bool) {
	return of, json.Unmarshal(line, &of) == nil && of.Step >= 1
}
