package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/optim"
)

// Version of the manifest's JSON form.
const Version = 1

// File is one safetensors file of a checkpoint.
type File struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	CRC32C  string `json:"crc32c"` // Castagnoli, 8 hex digits
	Tensors int    `json:"tensors"`
}

// Manifest says what a checkpoint belongs to and where training goes on.
type Manifest struct {
	Version int    `json:"version"`
	Model   string `json:"model"`
	ModelID string `json:"model_id"` // digest of the description: tensors fit one model
	Engine  string `json:"engine"`   // what computed it: same bits are promised within one engine and machine
	Float   string `json:"float"`    // element type of parameters
	// Steps is how many steps are done; training goes on with the step of this number.
	Steps   int    `json:"steps"`
	Seed    uint64 `json:"seed"`
	Batch   int    `json:"batch"`   // samples a step
	Samples int64  `json:"samples"` // the data position: samples consumed
	// MicroBatch decides which sums are formed in which order, so a run that goes on
	// with the same bits keeps it; the stages may change.
	MicroBatch int            `json:"micro_batch"`
	Optimizer  optim.Settings `json:"optimizer"`
	Rate       optim.Rate     `json:"rate"`
	Clip       float64        `json:"clip,omitempty"`
	Loss       float64        `json:"loss"` // of the last step
	Plan       *plan.Plan     `json:"plan,omitempty"`
	// Updates is, by layer, how many updates the optimizer's states are of, where that is not Steps: a stage of
	// replicas that take minibatches in turn updates once for several.
	Updates map[string]int `json:"updates,omitempty"`
	Files   []File         `json:"files"`
}

// UpdatesOf is how many updates the optimizer's states of a layer are of.
func (m *Manifest) UpdatesOf(layer string) int {
	if n, apart := m.Updates[layer]; apart {
		return n
	}
	return m.Steps
}

func (m *Manifest) encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("checkpoint: manifest: %w", err)
	}
	return append(b, '\n'), nil
}

// decodeManifest reads and checks a manifest.
func decodeManifest(b []byte) (*Manifest, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("it is cut short or no JSON: %w", err)
	}
	if head.Version != Version {
		return nil, fmt.Errorf("version is %d; this millrace reads %d", head.Version, Version)
	}
	m := &Manifest{}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, err
	}
	switch {
	case m.Steps < 0:
		return nil, fmt.Errorf("steps is %d; it must be 0 or more", m.Steps)
	case m.Batch < 1 || m.MicroBatch < 1:
		return nil, fmt.Errorf("batch is %d and micro_batch %d; both must be at least 1", m.Batch, m.MicroBatch)
	case m.Samples < 0:
		return nil, fmt.Errorf("samples is %d; it must be 0 or more", m.Samples)
	case m.Samples%int64(m.Batch) != 0:
		return nil, fmt.Errorf("samples is %d with a batch of %d; they are whole batches", m.Samples, m.Batch)
	case len(m.Files) == 0:
		return nil, fmt.Errorf("files is empty; a checkpoint has at least one")
	}
	for layer, n := range m.Updates {
		if n < 0 || n > m.Steps {
			return nil, fmt.Errorf("updates of layer %s are %d in %d steps; a step updates it once at most", layer, n, m.Steps)
		}
	}
	seen := map[string]bool{}
	for i, f := range m.Files {
		if !plainName(f.Name) || f.Name == manifestName || seen[f.Name] {
			return nil, fmt.Errorf("files[%d].name is %q; it must be a file name of its own in the same directory", i, f.Name)
		}
		if f.Bytes < 0 || f.Tensors < 0 {
			return nil, fmt.Errorf("files[%d]: bytes %d and tensors %d; neither can be negative", i, f.Bytes, f.Tensors)
		}
		seen[f.Name] = true
	}
	return m, nil
}

// plainName says whether a name stays inside the directory it is in.
func plainName(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > 255 {
		return false
	}
	for _, r := range s {
		if r == '/' || r == '\\' || r < ' ' {
			return false
		}
	}
	return true
}
