package avgpipe

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/trace"
)

// Observing says what a Timeline is of.
type Observing struct {
	At Degrees
	// Skip is how many first iterations are left out, whose caches are cold.
	Skip int
	// Reached is the part of its peak rate, 0 to 1, at which a stage's worker computes during
	// an instruction of a kind. nil is 1: a worker that computes has its core to itself.
	Reached func(stage int, kind string) float64
	// ReferenceBytes is one set of parameters of each stage, and UpdateBytes what its update
	// takes for a moment; nil is unknown.
	ReferenceBytes, UpdateBytes []int64
}

// Observe is AvgPipe's profiler (section 5.2.1): it takes what equations 1 to 8 are asked from
// the Timeline of a few batches at one setting, of run and sim alike. Devices are in the
// order of their first stages; amounts are means over the iterations after the first Skip.
//
// Utilisation is measured as CPU time: a worker's compute events are when its thread has its
// core, so the curve is over those, at 1 each, or at the part of the core's peak rate that
// Reached gives. A GPU's occupancy counter, which the paper reads, does not exist there. Events
// of several pipelines on one worker stand one behind the other, never on top of each other:
// one core runs one thing at a time, and phi is 1 at most by construction.
//
// Communication is the messages that a device sends, activations and gradients, from when
// they get the link to when they have arrived. Gaps that waited for a link, or for the greater
// part for a message under way, are blocking communication; all other gaps are bubble. F_mod is what a device
// holds when an update begins, the least of all: by then activations are gone, and parameters,
// optimizer states and gradients are there. The rest of the peak is F_dat, what an update takes
// for a moment left out.
//
// Refused: Timelines without memory samples, or with fewer than two iterations after the first
// Skip; an instruction whose text cannot be read.
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
	perBatch := 1 / float64(len(settled)*o.At.Pipelines)
	out := &Observation{At: o.At, StepS: t.Period(max(o.Skip-1, 0)) / float64(o.At.Pipelines),
		Devices: make([]Observed, t.Workers)}
	sends := make([][]trace.Event, t.Workers)
	first := make([]int, t.Workers) // stage of each worker
	for w := range first {
		first[w] = -1
	}
	for i := range t.Events {
		e := &t.Events[i]
		sent := e.Kind == "SF" || e.Kind == "SB"
		if !kept[e.Step] || !sent && (e.Lane != trace.Compute || !trace.IsBusy(e.Kind) || e.Kind == "EV") {
			continue
		}
		d := &out.Devices[e.Worker]
		if sent {
			d.CommunicationS += (e.EndS - e.StartS) / float64(len(settled))
			sends[e.Worker] = append(sends[e.Worker], *e)
			continue
		}
		f, ok := trace.ParseFields(e.Instruction)
		if !ok {
			return nil, fmt.Errorf("tune: event %d of the Timeline is %q; want an instruction like 0F3", i, e.Instruction)
		}
		if at := &first[e.Worker]; *at < 0 || f.Stage < *at {
			*at = f.Stage
		}
		reached := 1.0
		if o.Reached != nil {
			reached = min(max(o.Reached(f.Stage, e.Kind), 0), 1)
		}
		d.Utilisation = d.Utilisation.add(e.EndS-e.StartS, reached)
	}
	window := t.Window(settled[0].StartS, settled[len(settled)-1].EndS)
	for w, gaps := range trace.AllGaps(window) {
		d := &out.Devices[w]
		d.Utilisation = d.Utilisation.scaled(perBatch)
		d.InFlightS = inFlight(sends[w]) / float64(len(settled))
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
		if s := first[w]; s >= 0 && s < len(o.ReferenceBytes) {
			d.ReferenceBytes = o.ReferenceBytes[s]
		}
		if s := first[w]; s >= 0 && s < len(o.UpdateBytes) {
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
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(first[a], first[b]) })
	sorted := make([]Observed, t.Workers)
	for k, w := range order {
		sorted[k] = out.Devices[w]
	}
	out.Devices = sorted
	return out, out.check()
}

// inFlight is for how long at least one of some messages waited for a link or was on its way.
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
		// In the order of time; what happened at one moment stays in the order of its record.
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
			working = peak // more than updates reach: samples may have missed it
		}
		d.ModelBytes = min(least[w], peak)
		d.DataBytes = max(working-d.ModelBytes, 0)
	}
	return nil
}

// heldBefore is what a worker holds when an instruction starts: of the last sample before
// that moment and of those at it the least, because at it stands also what the instruction
// itself takes for a moment.
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
