package profile

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/millrace-ml/millrace/internal/document"
)

// Read reads a profile file. Unknown fields, other versions and truncated files are
// refused, so that nothing is lost by reading and writing again.
func Read(path string) (*Profile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	p, err := Decode(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, path)
	}
	return p, nil
}

// Decode reads the JSON form.
func Decode(r io.Reader) (*Profile, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	var p Profile
	if err := document.Decode(text, Version, &p); err != nil {
		return nil, fmt.Errorf("profile: cannot read it: %w; write it again with: millrace profile", err)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &p, nil
}

// Write writes the JSON form to a file, whole or not at all.
func (p *Profile) Write(path string) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if err := document.WriteJSON(path, p); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return nil
}

// maxLayers bounds what a file may ask of planners.
const maxLayers = 100_000

// Validate refuses values that no measurement gives, naming the layer and the field.
func (p *Profile) Validate() error {
	if len(p.Layers) == 0 {
		return fmt.Errorf("profile: %s has no layers", p.Model)
	}
	if len(p.Layers) > maxLayers {
		return fmt.Errorf("profile: %s has %d layers; at most %d are read", p.Model, len(p.Layers), maxLayers)
	}
	for i, l := range p.Layers {
		bad := func(field string, v any, want string) error {
			return fmt.Errorf("profile: layer %d (%s): %s is %v; it must be %s", i, l.Name, field, v, want)
		}
		if l.TiedTo < -1 || l.TiedTo >= i {
			return bad("tied_to", l.TiedTo, "an earlier layer or -1")
		}
		for _, from := range l.From {
			if from < -1 || from >= i {
				return bad("from", from, "an earlier layer, or -1 for a model input")
			}
		}
		for _, f := range l.Feeds {
			if f.BytesPerSample < 0 {
				return bad("feeds: bytes_per_sample of "+f.Name, f.BytesPerSample, "0 or more")
			}
		}
		if l.ParameterBytes < 0 || l.TiedBytes < 0 || l.BufferBytes < 0 {
			return bad("parameter_bytes, tied_bytes or buffer_bytes", min(l.ParameterBytes, l.TiedBytes, l.BufferBytes), "0 or more")
		}
		if !(l.UpdateS >= 0) || math.IsInf(l.UpdateS, 0) {
			return bad("update_s", l.UpdateS, "0 or more seconds")
		}
		if !(l.ElasticUpdateS >= 0) || math.IsInf(l.ElasticUpdateS, 0) || !(l.ReferenceUpdateS >= 0) || math.IsInf(l.ReferenceUpdateS, 0) {
			return bad("elastic_update_s and reference_update_s", [2]float64{l.ElasticUpdateS, l.ReferenceUpdateS}, "0 or more seconds")
		}
		if len(l.Costs) == 0 {
			return bad("costs", "empty", "one entry for each device and micro-batch size")
		}
		for _, c := range l.Costs {
			at := fmt.Sprintf("micro-batch %d on %s", c.MicroBatch, c.Device)
			if c.MicroBatch < 1 {
				return bad(at+": micro_batch", c.MicroBatch, "1 at least")
			}
			times := map[string]float64{"forward_s": c.ForwardS, "backward_s": c.BackwardS}
			if c.BackwardInputS != nil {
				times["backward_input_s"] = *c.BackwardInputS
			}
			if c.BackwardWeightS != nil {
				times["backward_weight_s"] = *c.BackwardWeightS
			}
			for _, field := range []string{"forward_s", "backward_s", "backward_input_s", "backward_weight_s"} {
				if v, ok := times[field]; ok && (!(v >= 0) || math.IsInf(v, 0)) {
					return bad(at+": "+field, v, "0 or more seconds")
				}
			}
			for _, n := range c.sizes() {
				if *n < 0 {
					return bad(at+": a size in bytes", *n, "0 or more")
				}
			}
		}
	}
	return nil
}
