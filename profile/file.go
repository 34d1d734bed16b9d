package profile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/millrace-ml/millrace/internal/document"
)

// Read reads a profile file. Unknown fields, other versions and truncated files are
// refused, so that nothing is lost by reading and writing again.
func Read(path string) (*Profile, error) {
	text, err := document.Read(path, document.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("profile: %w; millrace profile -o writes one, and millrace import makes one of another project's", err)
	}
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
	text, err := document.ReadAll(r, document.MaxBytes)
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

// MaxLayers bounds what a file may ask of planners.
const MaxLayers = 100_000

// What a profile may say at most, so that no sum over layers, micro-batches and versions overflows: a time is
// thirty years, and all layers together hold a petabyte.
const (
	mostS     = 1e9
	mostBytes = 1e15
)

// Validate refuses values that no measurement gives, naming the layer and the field.
func (p *Profile) Validate() error {
	if len(p.Layers) == 0 {
		return fmt.Errorf("profile: %s has no layers", p.Model)
	}
	if len(p.Layers) > MaxLayers {
		return fmt.Errorf("profile: %s has %d layers; at most %d are read", p.Model, len(p.Layers), MaxLayers)
	}
	if !(p.PaceSpread >= 0 && p.PaceSpread <= mostSpread) {
		return fmt.Errorf("profile: %s: pace_spread is %v; it must be a part of the workers' mean, 0 to %g", p.Model, p.PaceSpread, mostSpread)
	}
	held := 0.0 // by all layers so far, each at its largest size
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
		if !(l.UpdateS >= 0 && l.UpdateS <= mostS) {
			return bad("update_s", l.UpdateS, fmt.Sprintf("0 or more seconds, up to %g", mostS))
		}
		if !(l.ElasticUpdateS >= 0 && l.ElasticUpdateS <= mostS && l.ReferenceUpdateS >= 0 && l.ReferenceUpdateS <= mostS) {
			return bad("elastic_update_s and reference_update_s", [2]float64{l.ElasticUpdateS, l.ReferenceUpdateS}, "0 or more seconds")
		}
		if len(l.Costs) == 0 {
			return bad("costs", "empty", "one entry for each device and micro-batch size")
		}
		largest := int64(0)
		for _, c := range l.Costs {
			at := fmt.Sprintf("micro-batch %d on %s", c.MicroBatch, c.Device)
			if c.MicroBatch < 1 {
				return bad(at+": micro_batch", c.MicroBatch, "1 at least")
			}
			times := map[string]float64{"forward_s": c.ForwardS, "backward_s": c.BackwardS, "feed_s": c.FeedS}
			if c.BareForwardS != nil {
				times["bare_forward_s"] = *c.BareForwardS
			}
			if c.AgainS != nil {
				times["again_s"] = *c.AgainS
			}
			if c.BackwardInputS != nil {
				times["backward_input_s"] = *c.BackwardInputS
			}
			if c.BackwardWeightS != nil {
				times["backward_weight_s"] = *c.BackwardWeightS
			}
			for _, field := range []string{"forward_s", "backward_s", "backward_input_s", "backward_weight_s", "bare_forward_s", "again_s", "feed_s"} {
				if v, ok := times[field]; ok && !(v >= 0 && v <= mostS) {
					return bad(at+": "+field, v, fmt.Sprintf("0 or more seconds, up to %g", mostS))
				}
			}
			for _, n := range c.sizes() {
				if *n < 0 {
					return bad(at+": a size in bytes", *n, "0 or more")
				}
				largest = max(largest, *n)
			}
		}
		held += float64(l.ParameterBytes) + float64(l.TiedBytes) + float64(l.BufferBytes) + float64(largest)
		if held > mostBytes {
			return bad("the bytes of all layers up to it", held, fmt.Sprintf("%g at most together: what a plan adds up would not fit an integer", mostBytes))
		}
	}
	return nil
}
