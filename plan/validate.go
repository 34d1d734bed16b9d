package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/profile"
)

// maxCount limits micro-batches and their samples, so that the product of the two does not overflow.
const maxCount = 1<<28 - 1

// Validate refuses plans that contradict themselves or have values out of range.
func (p *Plan) Validate() error {
	for _, name := range []string{p.Model, p.Planner, p.Schedule} {
		if err := names.Check(name); err != nil {
			return fmt.Errorf("plan: it has %w", err)
		}
	}
	if len(p.Stages) == 0 {
		return fmt.Errorf("plan: it has no stages")
	}
	if p.MicroBatch < 1 || p.MicroBatches < 1 || p.MicroBatch > maxCount || p.MicroBatches > maxCount {
		return fmt.Errorf("plan: %d micro-batches of %d samples; both must be 1 to %d",
			p.MicroBatches, p.MicroBatch, maxCount)
	}
	if p.Replication != "split" && p.Replication != "round_robin" {
		return fmt.Errorf("plan: replication is %q; it is split or round_robin", p.Replication)
	}
	if e := p.Elastic; e != nil {
		if p.Weights != "elastic" {
			return fmt.Errorf("plan: elastic is given for weights %q; it belongs to the weight policy elastic",
				p.Weights)
		}
		if err := e.Check(); err != nil {
			return fmt.Errorf("plan: elastic: %w", err)
		}
	}
	if s := p.Staleness; s != nil && (p.Weights != "asp" || *s < 0 || *s > maxCount) {
		return fmt.Errorf("plan: staleness is %d for weights %q; it is 0 to %d minibatches, and belongs to the weight "+
			"policy asp", *s, p.Weights, maxCount)
	}
	if p.Precision != "" && !slices.Contains(cluster.Precisions, p.Precision) {
		return fmt.Errorf("plan: precision is %q; it is one of %s, or left out for f32", p.Precision,
			strings.Join(cluster.Precisions, ", "))
	}
	if t := p.Tensor; t != nil && (t.Devices < 2 || t.Devices > 64) {
		return fmt.Errorf("plan: tensor: devices is %d; a group has 2 to 64", t.Devices)
	}
	if f, err := packing.Named(string(p.Boundary)); err != nil || f != p.Boundary {
		return fmt.Errorf("plan: boundary is %q; it is f16, bf16 or i8, or left out for f32", p.Boundary)
	}
	if err := p.checkReplicas(); err != nil {
		return err
	}
	if p.PostValidate && p.Weights != "sync" && p.Weights != "" {
		return fmt.Errorf("plan: post_validate is given for weights %q; updates are validated later where a step ends "+
			"in a flush, under sync",
			p.Weights)
	}
	next := 0
	for i := range p.Stages {
		s := &p.Stages[i]
		if s.FirstLayer != next && !p.Shares(i) {
			return fmt.Errorf("plan: stage %d begins with layer %d; the stage before it ends so that it must be %d",
				i, s.FirstLayer, next)
		}
		if err := s.validate(); err != nil {
			return fmt.Errorf("plan: stage %d%w", i, err)
		}
		next = s.LastLayer + 1
	}
	if err := p.checkParts(); err != nil {
		return err
	}
	if err := p.checkOrder(next); err != nil {
		return err
	}
	if _, err := p.For(); err != nil {
		return err
	}
	return p.checkNumbers()
}

// validate refuses a stage with fields that are out of range or contradict each other. The error's text is written to
// follow the stage's name, as in "stage 3".
func (s *Stage) validate() error {
	if s.LastLayer < s.FirstLayer {
		return fmt.Errorf(" is layers %d to %d; it needs one at least", s.FirstLayer, s.LastLayer)
	}
	if s.LastLayer >= profile.MaxLayers {
		return fmt.Errorf(" ends with layer %d; a model has %d layers at most", s.LastLayer, profile.MaxLayers)
	}
	for _, f := range []struct {
		field string
		part  float64
	}{{"first_fraction", s.FirstFraction}, {"last_fraction", s.LastFraction}} {
		if !(f.part >= 0 && f.part <= 1) {
			return fmt.Errorf(": %s is %v; it is the part of a layer, above 0 to 1, or left out", f.field, f.part)
		}
	}
	if s.FirstLayer == s.LastLayer && s.FirstFraction > 0 && s.LastFraction > 0 {
		return fmt.Errorf(": first_fraction and last_fraction are both of layer %d; give one", s.FirstLayer)
	}
	if s.Recompute < Selective {
		return fmt.Errorf(": recompute is %d; it is KeepAll, KeepInput, Blocks, Selective or Every of 1 layer or more",
			int(s.Recompute))
	}
	if s.Warmup < 0 || s.Warmup > maxCount {
		return fmt.Errorf(": warmup is %d; it is the forwards before the first backward, 1 to %d, or 0 to "+
			"leave it to the schedule",
			s.Warmup, maxCount)
	}
	if len(s.Devices) == 0 {
		return fmt.Errorf(" is on no device")
	}
	// A device may hold several stages; the families of package schedule say which orders allow that.
	devices := slices.Sorted(slices.Values(s.Devices))
	for k, d := range devices {
		if d < 0 || k > 0 && d == devices[k-1] {
			return fmt.Errorf(" is on device %d, which is negative or named twice", d)
		}
		if d >= cluster.MaxDevices {
			return fmt.Errorf(" is on device %d; a cluster has %d at most, counted from 0", d, cluster.MaxDevices)
		}
	}
	return nil
}

// checkOrder refuses an order that does not have every layer exactly once.
func (p *Plan) checkOrder(layers int) error {
	if len(p.Order) == 0 {
		return nil
	}
	if len(p.Order) != layers {
		return fmt.Errorf("plan: order has %d layers; the stages have %d", len(p.Order), layers)
	}
	at := make([]int, layers)
	for i, l := range p.Order {
		if l < 0 || l >= layers {
			return fmt.Errorf("plan: order: layer %d at position %d; layers are 0 to %d", l, i, layers-1)
		}
		if at[l] > 0 {
			return fmt.Errorf("plan: order: layer %d is at positions %d and %d; each is there once", l, at[l]-1, i)
		}
		at[l] = i + 1
	}
	return nil
}

// checkNumbers refuses objectives, bounds and predictions that are not finite. It refuses predictions and step bounds
// that are negative. It also refuses predictions that do not have one value for each device.
func (p *Plan) checkNumbers() error {
	if v := p.Objective.Value; math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("plan: objective: value is %v; it must be a number", v)
	}
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	if b := p.LowerBound; b != nil && !(b.StepS >= 0 && finite(b.StepS) && finite(b.Gap)) {
		return fmt.Errorf("plan: lower_bound: step_s is %v and gap %v; they must be numbers, step_s 0 or more",
			b.StepS, b.Gap)
	}
	q := p.Predicted
	if q == nil {
		return nil
	}
	if n := len(p.Devices()); len(q.MemoryBytes) != n || len(q.BusyS) != n || len(q.PeakActivations) != n {
		return fmt.Errorf("plan: predicted: %d memory_bytes, %d busy_s and %d peak_activations; each has one for "+
			"each of its %d devices", len(q.MemoryBytes), len(q.BusyS), len(q.PeakActivations), n)
	}
	for _, f := range []struct {
		field  string
		values []float64
	}{{"step_s", []float64{q.StepS}}, {"samples_per_s", []float64{q.SamplesPerSecond}},
		{"bubble", []float64{q.Bubble}}, {"busy_s", q.BusyS}} {
		for _, v := range f.values {
			if !(v >= 0) || math.IsInf(v, 0) {
				return fmt.Errorf("plan: predicted: %s is %v; it must be a number, 0 or more", f.field, v)
			}
		}
	}
	for _, f := range []struct {
		field string
		bytes []int64
	}{{"memory_bytes", q.MemoryBytes}, {"at_most_bytes", q.AtMostBytes}, {"evaluation_bytes", q.EvaluationBytes}} {
		if f.bytes != nil && len(f.bytes) != len(q.MemoryBytes) {
			return fmt.Errorf("plan: predicted: %d %s for %d devices", len(f.bytes), f.field, len(q.MemoryBytes))
		}
		for _, n := range f.bytes {
			if n < 0 {
				return fmt.Errorf("plan: predicted: %s has %d; bytes are 0 or more", f.field, n)
			}
		}
	}
	return nil
}
