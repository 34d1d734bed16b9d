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

// openMetrics opens a file of metrics to be continued after done steps. Lines about later steps, which an earlier
// run may have left, are removed, so that every step stands there once. A last line that was cut short is removed
// too and, where the last step done is evaluated again, so is its evaluation.
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

// metricsUpTo is the whole lines of text that are about the first done steps, which count from 1. The evaluation of
// the last of them is left out where it comes again.
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

// metric is what a line of metrics is about.
type metric struct {
	Step       int      `json:"step"`
	Evaluation *float64 `json:"evaluation_loss"`
}

// ofStep is what a line is about; false where no run has written it.
func ofStep(line []byte) (of metric, is bool) {
	return of, json.Unmarshal(line, &of) == nil && of.Step >= 1
}
