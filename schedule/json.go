package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Version is the version of the JSON form.
const Version = 1

type programFile struct {
	Version int `json:"version"`
	*Program
}

// WriteJSON writes the Program as JSON with its version. Instructions are in their text form.
func (p *Program) WriteJSON(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(programFile{Version, p}); err != nil {
		return fmt.Errorf("schedule: writing program %s: %w", p.Name, err)
	}
	return nil
}

// maxLists is more than the number of lists in any Program's JSON. A list holds a worker's instructions in a part, the
// workers of a stage in a pipeline, or tied stages.
const maxLists = 3*MaxWorkers + (MaxPipeline+1)*(MaxStage+2)

// ReadJSON reads what WriteJSON wrote. Unknown fields, other versions and anything after the Program are refused. An
// accepted Program still has to pass check.Check.
func ReadJSON(r io.Reader) (*Program, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("schedule: program JSON, byte %d: %w", len(text), err)
	}
	if n := bytes.Count(text, []byte("[")); n > maxLists { // each list takes memory, even an empty one
		return nil, fmt.Errorf("schedule: program JSON has %d lists; a program has %d at most", n, maxLists)
	}
	f := programFile{Program: &Program{}}
	dec := json.NewDecoder(bytes.NewReader(text))
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
