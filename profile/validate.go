package profile

import (
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/internal/names"
)

// MaxLayers is the largest number of layers in a file.
const MaxLayers = 100_000

// These limit the values in a profile, so that no sum over layers, micro-batches and versions overflows. A time is at
// most thirty years, and all layers together hold at most a petabyte.
const (
	mostS     = 1e9
	mostBytes = 1e15
	mostRate  = 1e18 // bytes per second of a link
	leastRate = 1e-3
	// mostSize is the largest number of samples of a micro-batch. It is larger than in a plan, because analytic profiles
	// also have multiples of a plan's sizes.
	mostSize = 1 << 30
	// mostCounted is the largest count on one machine: workers, threads, copies that an optimizer keeps.
	mostCounted = 1 << 16
)

// wrong returns the error for an impossible value.
func wrong(field string, v any, want string) error {
	return fmt.Errorf("%s is %v; it must be %s", field, v, want)
}

// times refuses seconds that are negative, not a number or more than mostS. A nil field is unknown.
func times(fields ...named) error {
	for _, f := range fields {
		if f.value != nil && !(*f.value >= 0 && *f.value <= mostS) {
			return wrong(f.field, *f.value, fmt.Sprintf("0 or more seconds, up to %g", mostS))
		}
	}
	return nil
}

type named struct {
	field string
	value *float64
}

// Validate refuses impossible values. Its error names the layer and the field.
func (p *Profile) Validate() error {
	if err := names.Check(p.Model); err != nil {
		return fmt.Errorf("profile: the model has %w", err)
	}
	if len(p.Layers) == 0 {
		return fmt.Errorf("profile: %s has no layers", p.Model)
	}
	if len(p.Layers) > MaxLayers {
		return fmt.Errorf("profile: %s has %d layers; at most %d are read", p.Model, len(p.Layers), MaxLayers)
	}
	if err := p.validateMachine(); err != nil {
		return fmt.Errorf("profile: %s: %w", p.Model, err)
	}
	held := 0.0 // bytes of all layers so far, each at its largest size, with the optimizer's copies
	for i := range p.Layers {
		l := &p.Layers[i]
		own, err := l.validate(i, p.OptimizerStates)
		if err == nil {
			if held += own; held > mostBytes {
				err = wrong("the bytes of all layers up to it", held,
					fmt.Sprintf("%g at most together: what a plan adds up would not fit an integer", mostBytes))
			}
		}
		if err != nil {
			return fmt.Errorf("profile: layer %d (%s): %w", i, l.Name, err)
		}
	}
	return nil
}

// validateMachine checks the fields that do not belong to a layer.
func (p *Profile) validateMachine() error {
	for _, n := range []counted{{"optimizer_states", p.OptimizerStates}, {"threads_per_worker", p.ThreadsPerWorker}} {
		if err := n.check(); err != nil {
			return err
		}
	}
	if err := validMachine(p.PaceSpread, p.PassSpread, p.Concurrency, p.Transfer); err != nil {
		return err
	}
	return p.validateMachines()
}

// counted is a count on one machine, with its field's name.
type counted struct {
	field string
	value int
}

func (n counted) check() error {
	if n.value < 0 || n.value > mostCounted {
		return wrong(n.field, n.value, fmt.Sprintf("0 to %d", mostCounted))
	}
	return nil
}

// mostSpread is the largest accepted Profile.PaceSpread. A worker that is slower than the mean by this factor has
// stopped.
const mostSpread = 100.0

// validMachine refuses values that no measurement of a machine can have.
func validMachine(paceSpread float64, passes *PassSpread, concurrency int, t *Transfer) error {
	if p := passes; p != nil && !(p.Below >= 0 && p.Below <= 1 && p.Above >= 0 && p.Above <= mostS && p.Passes > 0) {
		return wrong("pass_spread", fmt.Sprintf("%+v", *p), "parts of the middle pass, 0 at least, of 1 pass at least")
	}
	if !(paceSpread >= 0 && paceSpread <= mostSpread) {
		return wrong("pace_spread", paceSpread, fmt.Sprintf("a part of the workers' mean, 0 to %g", mostSpread))
	}
	if err := (counted{"concurrency", concurrency}).check(); err != nil || t == nil {
		return err
	}
	if err := (counted{"transfer: all_reduce_workers", t.AllReduceWorkers}).check(); err != nil {
		return err
	}
	if b := t.BandwidthBytesPerSecond; !(b >= leastRate && b <= mostRate) {
		return wrong("transfer: bandwidth_bytes_per_s", b, fmt.Sprintf("%g to %g", leastRate, mostRate))
	}
	if b := t.AllReduceBytesPerSecond; b != 0 && !(b >= leastRate && b <= mostRate) {
		return wrong("transfer: all_reduce_bytes_per_s", b, fmt.Sprintf("%g to %g, or 0 for that of a transfer",
			leastRate, mostRate))
	}
	if err := t.checkPacking(); err != nil {
		return err
	}
	return times(named{"transfer: latency_s", &t.LatencyS}, named{"transfer: dispatch_s", &t.DispatchS},
		named{"transfer: send_s", &t.SendS},
		named{"transfer: receive_s", &t.ReceiveS})
}

// validate checks layer i. It returns the largest number of bytes that the layer holds, including the optimizer's
// copies of the parameters. The argument `states` is the number of copies.
func (l *Layer) validate(i, states int) (bytes float64, err error) {
	if err := names.Check(l.Name); err != nil {
		return 0, err
	}
	if l.TiedTo < -1 || l.TiedTo >= i {
		return 0, wrong("tied_to", l.TiedTo, "an earlier layer or -1")
	}
	for _, from := range l.From {
		if from < -1 || from >= i {
			return 0, wrong("from", from, "an earlier layer, or -1 for a model input")
		}
	}
	if l.ParameterBytes < 0 || l.TiedBytes < 0 || l.BufferBytes < 0 {
		return 0, wrong("parameter_bytes, tied_bytes or buffer_bytes", min(l.ParameterBytes, l.TiedBytes,
			l.BufferBytes), "0 or more")
	}
	if l.FrozenBytes < 0 {
		return 0, wrong("frozen_bytes", l.FrozenBytes, "0 or more")
	}
	for _, shared := range l.FrozenShared {
		if shared.Bytes < 0 {
			return 0, wrong("frozen_shared: bytes of "+names.Shown(shared.Name), shared.Bytes, "0 or more")
		}
		bytes += float64(shared.Bytes)
	}
	if err := l.validateUpdates(); err != nil {
		return 0, err
	}
	if len(l.Costs) == 0 {
		return 0, wrong("costs", "empty", "one entry for each device and micro-batch size")
	}
	largest, rows := int64(0), 0
	type key struct {
		device string
		size   int
	}
	seen := map[key]bool{}
	for k := range l.Costs {
		c := &l.Costs[k]
		err := errors.Join(names.Check(c.Device), c.validate())
		if at := (key{c.Device, c.MicroBatch}); err == nil && seen[at] {
			err = fmt.Errorf("it is there twice")
		} else {
			seen[at] = true
		}
		if err != nil {
			return 0, fmt.Errorf("micro-batch %d on %s: %w", c.MicroBatch, c.Device, err)
		}
		rows = max(rows, c.MicroBatch)
		for _, n := range c.sizes() {
			largest = max(largest, *n)
		}
	}
	bytes += (float64(l.ParameterBytes)+float64(l.TiedBytes))*float64(1+states) + float64(l.BufferBytes) +
		float64(l.FrozenBytes) + float64(largest)
	for _, f := range l.Feeds {
		if f.BytesPerSample < 0 {
			return 0, wrong("feeds: bytes_per_sample of "+f.Name, f.BytesPerSample, "0 or more")
		}
		bytes += float64(f.BytesPerSample) * float64(rows)
	}
	return bytes, nil
}

func (c *Cost) validate() error {
	if c.MicroBatch < 1 || c.MicroBatch > mostSize {
		return wrong("micro_batch", c.MicroBatch, fmt.Sprintf("1 at least, and %d at most", mostSize))
	}
	if !(c.Spread >= 0 && c.Spread <= mostS) {
		return wrong("spread", c.Spread, "a part of the median, 0 or more")
	}
	for _, n := range c.sizes() {
		if *n < 0 {
			return wrong("a size in bytes", *n, "0 or more")
		}
	}
	if b := c.Board; b != nil {
		if err := times(named{"board: paired_s", &b.PairedS}, named{"board: forward_memory_s", &b.ForwardMemoryS},
			named{"board: backward_memory_s", &b.BackwardMemoryS}); err != nil {
			return err
		}
	}
	return times(named{"forward_s", &c.ForwardS}, named{"backward_s", &c.BackwardS},
		named{"backward_input_s", c.BackwardInputS},
		named{"backward_weight_s", c.BackwardWeightS}, named{"bare_forward_s", c.BareForwardS},
		named{"again_s", c.AgainS}, named{"feed_s", &c.FeedS},
		named{"scores: again_s", &c.Scores.AgainS})
}
