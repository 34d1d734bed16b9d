package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

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

// maxCount bounds micro-batches and their samples, so that no product of the two overflows.
const maxCount = 1<<28 - 1

// Validate refuses plans that contradict themselves.
func (p *Plan) Validate() error {
	if len(p.Stages) == 0 {
		return fmt.Errorf("plan: it has no stages")
	}
	if p.MicroBatch < 1 || p.MicroBatches < 1 || p.MicroBatch > maxCount || p.MicroBatches > maxCount {
		return fmt.Errorf("plan: %d micro-batches of %d samples; both must be 1 to %d", p.MicroBatches, p.MicroBatch, maxCount)
	}
	if p.Replication != "split" && p.Replication != "round_robin" {
		return fmt.Errorf("plan: replication is %q; it is split or round_robin", p.Replication)
	}
	if e := p.Elastic; e != nil {
		if p.Weights != "elastic" {
			return fmt.Errorf("plan: elastic is given for weights %q; it belongs to the weight policy elastic", p.Weights)
		}
		if err := e.Check(); err != nil {
			return fmt.Errorf("plan: elastic: %w", err)
		}
	}
	if p.PostValidate && p.Weights != "sync" && p.Weights != "" {
		return fmt.Errorf("plan: post_validate is given for weights %q; updates are validated later where a step ends in a flush, under sync", p.Weights)
	}
	next := 0
	for i, s := range p.Stages {
		if s.FirstLayer != next && !(s.FirstFraction > 0 && s.FirstLayer == next-1) {
			return fmt.Errorf("plan: stage %d begins with layer %d; the stage before it ends so that it must be %d", i, s.FirstLayer, next)
		}
		if s.LastLayer < s.FirstLayer {
			return fmt.Errorf("plan: stage %d is layers %d to %d; it needs one at least", i, s.FirstLayer, s.LastLayer)
		}
		if s.LastLayer >= profile.MaxLayers {
			return fmt.Errorf("plan: stage %d ends with layer %d; a model has %d layers at most", i, s.LastLayer, profile.MaxLayers)
		}
		next = s.LastLayer + 1
		for _, f := range []struct {
			field string
			part  float64
		}{{"first_fraction", s.FirstFraction}, {"last_fraction", s.LastFraction}} {
			if !(f.part >= 0 && f.part <= 1) {
				return fmt.Errorf("plan: stage %d: %s is %v; it is the part of a layer, above 0 to 1, or left out", i, f.field, f.part)
			}
		}
		if s.Recompute < KeepInput {
			return fmt.Errorf("plan: stage %d: recompute is %d; it is KeepAll, KeepInput or Every of 1 layer or more", i, int(s.Recompute))
		}
		if s.Warmup < 0 {
			return fmt.Errorf("plan: stage %d: warmup is %d; it is the forwards before the first backward, 1 or more, or 0 to leave it to the schedule", i, s.Warmup)
		}
		if len(s.Devices) == 0 {
			return fmt.Errorf("plan: stage %d is on no device", i)
		}
		// A device may hold several stages: which orders admit that, schedule's families say.
		for k, d := range s.Devices {
			if d < 0 || slices.Contains(s.Devices[:k], d) {
				return fmt.Errorf("plan: stage %d is on device %d, which is negative or named twice", i, d)
			}
		}
	}
	if err := p.checkParts(); err != nil {
		return err
	}
	if len(p.Order) > 0 {
		if len(p.Order) != next {
			return fmt.Errorf("plan: order has %d layers; the stages have %d", len(p.Order), next)
		}
		at := make([]int, next)
		for i, l := range p.Order {
			if l < 0 || l >= next {
				return fmt.Errorf("plan: order: layer %d at position %d; layers are 0 to %d", l, i, next-1)
			}
			if at[l] > 0 {
				return fmt.Errorf("plan: order: layer %d is at positions %d and %d; each is there once", l, at[l]-1, i)
			}
			at[l] = i + 1
		}
	}
	if q := p.Predicted; q != nil && (len(q.BusyS) != len(q.MemoryBytes) || len(q.PeakActivations) != len(q.MemoryBytes)) {
		return fmt.Errorf("plan: predicted: %d memory_bytes, %d busy_s and %d peak_activations; each has one for each device", len(q.MemoryBytes), len(q.BusyS), len(q.PeakActivations))
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
