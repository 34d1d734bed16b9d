package main

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
// left about these steps, which it did and did not save, go: every step stands there once. So does
// a last line that was cut short.
func openMetrics(path string, from int) (*os.File, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	kept := metricsBefore(text, from)
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

// metricsBefore is the whole lines of text that are about steps below from.
func metricsBefore(text []byte, from int) (kept []byte) {
	for line := range bytes.Lines(text) {
		var at struct {
			Step *int `json:"step"`
		}
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &at) != nil || at.Step == nil || *at.Step >= from {
			continue
		}
		kept = append(kept, line...)
	}
	return kept
}
