package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/profile"
)

// Read reads a plan file.
func Read(path string) (*Plan, error) {
	text, err := document.Read(path, document.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("plan: %w; millrace plan -o writes one", err)
	}
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	p, err := Decode(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, path)
	}
	return p, nil
}

// Decode reads the JSON form and checks what can be checked without the model.
func Decode(r io.Reader) (*Plan, error) {
	text, err := document.ReadAll(r, document.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	var p Plan
	if err := document.Decode(text, Version, &p); err != nil {
		return nil, fmt.Errorf("plan: cannot read it: %w; plan again with: millrace plan", err)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &p, nil
}

// Write writes the JSON form to a file, whole or not at all.
func (p *Plan) Write(path string) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if err := document.WriteJSON(path, p); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	return nil
}

// Orders refuses a plan whose order is no topological order of a profile's layers.
func (p *Plan) Orders(costs *profile.Profile) error {
	if len(p.Order) == 0 {
		return nil
	}
	if err := costs.CheckOrder(p.Order); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	return nil
}

// Fits refuses a plan that was made for another model.
func (p *Plan) Fits(modelName, modelID string, layers int) error {
	if p.ModelID != modelID {
		return fmt.Errorf("plan: it is for model %s (%s), not for %s (%s); plan again with: millrace plan", p.Model, p.ModelID, modelName, modelID)
	}
	if last := p.Stages[len(p.Stages)-1].LastLayer; last != layers-1 {
		return fmt.Errorf("plan: its last stage ends with layer %d; %s has %d layers", last, modelName, layers)
	}
	return nil
}
