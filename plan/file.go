package plan

import (
	"fmt"
	"io"

	"github.com/millrace-ml/millrace/internal/document"
)

var files = document.Store[Plan]{
	Room: "plan", Bytes: document.MaxBytes, Missing: "millrace plan -o writes one", Check: (*Plan).Validate,
	Decode: document.Versioned("plan", Version, "plan again with: millrace plan", (*Plan).Validate),
}

// Read reads a plan file.
func Read(path string) (*Plan, error) { return files.Read(path) }

// Decode reads the JSON form and checks what can be checked without the model.
func Decode(r io.Reader) (*Plan, error) { return files.From(r) }

// Write writes the JSON form to a file, completely or not at all.
func (p *Plan) Write(path string) error { return files.Write(path, p) }

// Fits refuses a plan that was made for another model.
func (p *Plan) Fits(modelName, modelID string, layers int) error {
	if p.ModelID != modelID {
		return fmt.Errorf("plan: it is for model %s (%s), not for %s (%s); plan again with: millrace plan", p.Model,
			p.ModelID, modelName, modelID)
	}
	if last := p.Stages[len(p.Stages)-1].LastLayer; last != layers-1 {
		return fmt.Errorf("plan: its last stage ends with layer %d; %s has %d layers", last, modelName, layers)
	}
	return nil
}
