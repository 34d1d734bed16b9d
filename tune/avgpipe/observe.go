package avgpipe

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/trace"
)

// Observing describes the run that was recorded in a Timeline.
type Observing struct {
	At Degrees
	// Skip is the number of iterations at the start that are left out, because caches are cold at first.
	Skip int
	// Stretches returns the layers that a stage's worker computes during an instruction of a kind, in order. Each has
	// its time and its time at the device's peak. If Stretches or its result is nil, the worker is assumed to be always
	// at its peak.
	Stretches func(stage int, kind string) []profile.Stretch
	// ReferenceBytes is the size of one set of parameters of each stage. UpdateBytes is the temporary memory of each
	// stage's update. nil means unknown.
	ReferenceBytes, UpdateBytes []int64
}

// Observe is AvgPipe's profiler (section 5.2.1). It takes the inputs of equations 1 to 8 from the Timeline of a few
// batches at one setting, from package run or sim. Devices are in the order of their first stages. Amounts are means
// over the iterations after the first Skip.
//
// Utilisation is a curve over time. The curve consists of a worker's compute events, one after another. Within an event
// it has a level for each layer. The event's time is divided in proportion to the layers' own times. A layer's
// utilisation is its work, in seconds at the device's peak, divided by its part of the time. So a delayed event has a
// lower utilisation, and so has a layer with a small micro-batch. The integral over an event is its computation,
// however long it took, unless it was faster than the peak. A GPU's occupancy counter, which the paper reads, does not
// exist on CPUs. Events of several pipelines on one worker follow each other and never overlap: one core runs one
// computation at a time, and phi is at most 1.
//
// Communication is the time of the messages that a device sends, activations and gradients. A message's time begins
// when it gets the link and ends when it arrives. Blocking communication is the total length of the gaps in which the
// device waited for a link, or mostly for a message under way. All other gaps count as bubble. F_mod is the smallest
// memory of a device at the beginning of an update. Activations are gone by then, and parameters, optimizer states and
// gradients are there. The rest of the peak is F_dat, without an update's temporary memory.
//
// Errors: Timelines without memory samples, Timelines with fewer than two iterations after the first Skip, and
// unreadable instructions.
func Observe(t *trace.Timeline, o Observing) (*Observation, error) {
	if err := o.At.check(); err != nil {
		return nil, err
	}
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	if o.Skip < 0 || len(t.Steps) < o.Skip+2 {
		return nil, fmt.Errorf("tune: a Timeline of %d iterations, of which the first %d are left out; at least two must "+
			"remain", len(t.Steps), o.Skip)
	}
	settled := t.Steps[o.Skip:]
	kept := map[int]bool{}
	for _, s := range settled {
		kept[s.Step] = true
	}
	did, err := o.activities(t, kept)
	if err != nil {
		return nil, err
	}
	perBatch := 1 / float64(len(settled)*o.At.Pipelines)
	out := &Observation{At: o.At, StepS: t.Period(max(o.Skip-1, 0)) / float64(o.At.Pipelines),
		Devices: make([]Observed, t.Workers)}
	window := t.Window(settled[0].StartS, settled[len(settled)-1].EndS)
	for w, gaps := range trace.AllGaps(window) {
		d := &out.Devices[w]
		d.Utilisation = inTime(did[w].computed).scaled(perBatch)
		for _, e := range did[w].sends {
			d.CommunicationS += (e.EndS - e.StartS) / float64(len(settled))
		}
		d.InFlightS = inFlight(did[w].sends) / float64(len(settled))
		for cause, s := range trace.Idle(gaps) {
			switch cause {
			case trace.WaitTransfer:
				d.BlockedS += s * perBatch
			case trace.WaitReduce:
				d.FlushS += s * perBatch
				fallthrough
			default:
				d.BubbleS += s * perBatch
			}
		}
		if w < len(t.PeakActivations) {
			d.Held = min((t.PeakActivations[w]+o.At.Pipelines-1)/o.At.Pipelines, o.At.MicroBatches)
		}
		if s := did[w].stage; s >= 0 && s < len(o.ReferenceBytes) {
			d.ReferenceBytes = o.ReferenceBytes[s]
		}
		if s := did[w].stage; s >= 0 && s < len(o.UpdateBytes) {
			d.UpdateBytes = o.UpdateBytes[s]
		}
	}
	if err := splitMemory(t, kept, out.Devices); err != nil {
		return nil, err
	}
	order := make([]int, t.Workers)
	for w := range order {
		order[w] = w
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(did[a].stage, did[b].stage) })
	sorted := make([]Observed, t.Workers)
	for k, w := range order {
		sorted[k] = out.Devices[w]
	}
	out.Devices = sorted
	return out, out.check()
}

// activity is a worker's work in the iterations that are kept.
type activity struct {
	stage    int // the first stage that it computed; -1 means none
	computed []stretch
	sends    []trace.Event
}

// activities collects the events of the kept steps, by worker.
func (o *Observing) activities(t *trace.Timeline, kept map[int]bool) ([]activity, error) {
	did := make([]activity, t.Workers)
	for w := range did {
		did[w].stage = -1
	}
	for i := range t.Events {
		e := &t.Events[i]
		sent := e.Kind == "SF" || e.Kind == "SB"
		if !kept[e.Step] || !sent && (e.Lane != trace.Compute || !trace.IsBusy(e.Kind) || e.Kind == "EV") {
			continue
		}
		a := &did[e.Worker]
		if sent {
			a.sends = append(a.sends, *e)
			continue
		}
		f, ok := trace.ParseFields(e.Instruction)
		if !ok {
			return nil, fmt.Errorf("tune: event %d of the Timeline is %q; want an instruction like 0F3", i, e.Instruction)
		}
		if a.stage < 0 || f.Stage < a.stage {
			a.stage = f.Stage
		}
		a.computed = append(a.computed, stretch{e.StartS, o.within(f.Stage, e)})
	}
	return did, nil
}

// stretch is the curve within an event.
type stretch struct {
	startS float64
	of     Curve
}

// inTime joins the curves of all stretches, in the order in which the stretches begin.
func inTime(all []stretch) (c Curve) {
	slices.SortStableFunc(all, func(a, b stretch) int { return cmp.Compare(a.startS, b.startS) })
	for _, s := range all {
		for _, l := range s.of {
			c = c.add(l.ForS, l.Phi)
		}
	}
	return c
}

// within returns the curve within an event of a stage.
func (o *Observing) within(stage int, e *trace.Event) (c Curve) {
	took, now := e.EndS-e.StartS, 0.0
	var layers []profile.Stretch
	if o.Stretches != nil {
		layers = o.Stretches(stage, e.Kind)
	}
	for _, l := range layers {
		now += l.NowS
	}
	if now <= 0 {
		return c.add(took, 1)
	}
	for _, l := range layers {
		forS := took * l.NowS / now
		c = c.add(forS, l.Phi(forS))
	}
	return c
}

// inFlight returns the time in which at least one of the messages waited for a link or was on its way.
func inFlight(sends []trace.Event) float64 {
	slices.SortFunc(sends, func(a, b trace.Event) int { return cmp.Compare(a.ReadyS, b.ReadyS) })
	sum, until := 0.0, math.Inf(-1)
	for _, e := range sends {
		sum += max(e.EndS-max(e.ReadyS, until), 0)
		until = max(until, e.EndS)
	}
	return sum
}

// splitMemory fills in ModelBytes and DataBytes.
func splitMemory(t *trace.Timeline, kept map[int]bool, devices []Observed) error {
	samples := make([][]trace.MemorySample, t.Workers)
	for _, m := range t.Memory {
		samples[m.Worker] = append(samples[m.Worker], m)
	}
	for w := range devices {
		// In the order of time; samples of the same moment keep their recorded order.
		slices.SortStableFunc(samples[w], func(a, b trace.MemorySample) int { return cmp.Compare(a.AtS, b.AtS) })
	}
	least, updates := make([]int64, t.Workers), make([][]trace.Event, t.Workers)
	for i := range t.Events {
		e := &t.Events[i]
		if e.Kind != "U" {
			continue
		}
		updates[e.Worker] = append(updates[e.Worker], *e)
		if !kept[e.Step] {
			continue
		}
		if before, ok := heldBefore(samples[e.Worker], e.StartS); ok && (least[e.Worker] == 0 || before < least[e.Worker]) {
			least[e.Worker] = before
		}
	}
	for w := range devices {
		if len(samples[w]) == 0 {
			return fmt.Errorf("tune: the Timeline has no memory samples of worker %d; record them", w)
		}
		d, peak, working := &devices[w], int64(0), int64(0)
		if w < len(t.PeakBytes) {
			peak = t.PeakBytes[w]
		}
		for _, m := range samples[w] {
			peak = max(peak, m.Bytes)
			if !slices.ContainsFunc(updates[w], func(u trace.Event) bool { return m.AtS >= u.StartS && m.AtS < u.EndS }) {
				working = max(working, m.Bytes)
			}
		}
		if peak > least[w]+d.UpdateBytes {
			working = peak // updates do not explain this peak; the memory samples may have missed its cause
		}
		d.ModelBytes = min(least[w], peak)
		d.DataBytes = max(working-d.ModelBytes, 0)
	}
	return nil
}

// heldBefore returns the bytes that a worker holds when an instruction starts. This is the smallest of several samples:
// the last one before that moment, and all at that moment. A sample at that moment may include the instruction's own
// memory.
func heldBefore(samples []trace.MemorySample, atS float64) (bytes int64, ok bool) {
	n, _ := slices.BinarySearchFunc(samples, atS, func(m trace.MemorySample, at float64) int {
		if m.AtS <= at {
			return -1
		}
		return 1
	})
	for i := n - 1; i >= 0; i-- {
		if !ok || samples[i].Bytes < bytes {
			bytes, ok = samples[i].Bytes, true
		}
		if samples[i].AtS < atS {
			break
		}
	}
	return bytes, ok
}
