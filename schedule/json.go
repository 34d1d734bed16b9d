package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Version of the JSON form.
const Version = 1

type programFile struct {
	Version int `json:"version"`
	*Program
}

// WriteJSON writes the Program as JSON with its version; instructions are in their text form.
func (p *Program) WriteJSON(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(programFile{Version, p}); err != nil {
		return fmt.Errorf("schedule: writing program %s: %w", p.Name, err)
	}
	return nil
}

// ReadJSON reads what WriteJSON wrote. Unknown fields, other versions and anything behind
// the Program are refused. What it accepts still has to pass check.Check.
func ReadJSON(r io.Reader) (*Program, error) {
	f := programFile{Program: &Program{}}
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("schedule: program JSON is empty")
		}
		return nil, fmt.Errorf("schedule: program JSON, byte %d: %w", dec.InputOffset(), err)
	}
	if f.Version != Version {
		return nil, fmt.Errorf("schedule: program JSON is of version %d; this millrace reads version %d", f.Version,
			Version)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("schedule: program JSON, byte %d: something stands behind the program",
			dec.InputOffset())
	}
	if err := f.complete(); err != nil {
		return nil, fmt.Errorf("schedule: program JSON: %w", err)
	}
	return f.Program, nil
}
