package sim

import (
	"cmp"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/trace"
)

// Over is the first instruction, with absolute ids, in which a worker holds more than its memory. If Throughout is
// true, the worker has too little memory even between instructions, and Instruction is empty.
type Over struct {
	Worker      int
	Instruction schedule.Instruction
	Throughout  bool
	Bytes       int64
}

// Summary is the result of a run.
type Summary struct {
	EndS float64 `json:"end_s"` // when the last instruction ended
	// StepS is the median, over steps, of the time from the end of one step to the end of the next. For a single step
	// it is the step's length. For workers without common steps (asp) it is the mean. If nothing trains, it is EndS.
	StepS float64 `json:"step_s"`
	Steps int     `json:"steps"`
	// BusyS is each worker's computing time in a step. It is the median over the same steps as StepS, or the mean under
	// asp. If nothing trains, it is TotalS. If times vary and steps overlap, a worker that never waits may have a BusyS
	// above the median step time. StepS is then this BusyS. Workers that share cores may compute for longer in all than
	// their cores have time in the median step. StepS is then the time that their cores need.
	BusyS           []float64 `json:"busy_s"`
	TotalS          []float64 `json:"-"`                // computing time by worker, from the start to the end
	Bubble          float64   `json:"bubble"`           // 1 - sum(busy) / (workers x step)
	PeakBytes       []int64   `json:"peak_bytes"`       // by worker
	PeakActivations []int     `json:"peak_activations"` // by worker
	// PeakGradients is the gradients of parameters that a worker holds at its peak, if updates are at the flush. What a
	// backward allocates while it runs does not count.
	PeakGradients []int64 `json:"-"`
	Instructions  int64   `json:"instructions"`
	Over          *Over   `json:"-"` // nil: no worker exceeds its memory
}

// journal is the output of a simulation: events to draw, and the times of every step.
type journal struct {
	records bool // whether to keep events and memory samples
	clock   *queue
	per     int32 // micro-batches in a minibatch
	tl      trace.Timeline
	steps   map[int]*stepTaken
	last    []*stepTaken // by worker: the step of its latest computation
	busyS   []float64    // by worker
}

func newJournal(p *schedule.Program, clock *queue, records bool) journal {
	j := journal{records: records, clock: clock, per: int32(p.PerMinibatch()), steps: map[int]*stepTaken{},
		last: make([]*stepTaken, p.Workers), busyS: make([]float64, p.Workers)}
	j.tl = trace.Timeline{
		Version: trace.Version, Source: "sim", Workers: p.Workers, Stages: p.Stages, Stream: p.Overlaps(),
	}
	return j
}

func (j *journal) stepOf(in schedule.Instruction) int {
	if in.Kind.OfMinibatch() {
		return int(in.Micro)
	}
	return int(in.Micro / j.per)
}

// stepTaken holds the times of a step during the simulation.
type stepTaken struct {
	trace.StepMark
	busyS []float64 // by worker
}

// markStart starts the step that a worker's computation belongs to, if the step has not started yet. The clock never
// goes back, so the step's first computation on any worker sets the start.
func (j *journal) markStart(w int, in schedule.Instruction) {
	step, now := j.stepOf(in), j.clock.now
	if in.Kind == schedule.EV || j.last[w] != nil && j.last[w].Step == step {
		return
	}
	if j.last[w] = j.steps[step]; j.last[w] == nil {
		j.last[w] = &stepTaken{trace.StepMark{Step: step, StartS: now, EndS: now}, make([]float64, len(j.last))}
		j.steps[step] = j.last[w]
	}
}

// markEnd moves the end of the step to now. The computation of the last markStart has just ended and took tookS.
func (j *journal) markEnd(w int, in schedule.Instruction, tookS float64) {
	j.busyS[w] += tookS
	if in.Kind != schedule.EV {
		step := j.last[w]
		step.EndS = j.clock.now
		step.busyS[w] += tookS
	}
}

// span records an instruction as an event.
func (j *journal) span(w int, in schedule.Instruction, lane trace.Lane, ready, start, end float64, bytes int64,
	blocked string) {
	j.tl.Events = append(j.tl.Events, trace.Event{
		Worker: w, Lane: lane, Instruction: in.String(), Kind: in.Kind.String(), Step: j.stepOf(in),
		ReadyS: ready, StartS: start, EndS: end, Bytes: bytes, BlockedBy: blocked,
	})
}

func (j *journal) sample(w int, bytes int64) {
	if j.records {
		j.tl.Memory = append(j.tl.Memory, trace.MemorySample{Worker: w, AtS: j.clock.now, Bytes: bytes})
	}
}

// record records an instruction of the worker's own that has just ended.
func (s *state) record(w int, in schedule.Instruction) {
	me := &s.workers[w]
	ready, blocked := me.reached, me.blockedBy
	if s.behind && in.Kind.IsCompute() {
		ready, blocked = me.device.freeS, me.device.blockedBy
	}
	if me.started <= ready {
		blocked = ""
	}
	s.journal.span(w, in, in.Kind.Lane(), ready, me.started, s.queue.now, s.terms.bytesOf(in), blocked)
}

func (s *state) timeline() *trace.Timeline {
	for _, m := range s.journal.steps {
		s.journal.tl.Steps = append(s.journal.tl.Steps, m.StepMark)
	}
	slices.SortFunc(s.journal.tl.Steps, func(a, b trace.StepMark) int { return a.Step - b.Step })
	for _, a := range s.memory.accounts {
		s.journal.tl.PeakBytes = append(s.journal.tl.PeakBytes, a.peak)
		s.journal.tl.PeakActivations = append(s.journal.tl.PeakActivations, a.mostMic)
	}
	// Sort by start, then by worker; equal events stay in the order in which they happened. Timeline.Sort would put
	// instructions that take no time in the order of their text.
	slices.SortStableFunc(s.journal.tl.Events, func(a, b trace.Event) int {
		return cmp.Or(cmp.Compare(a.StartS, b.StartS), a.Worker-b.Worker)
	})
	return &s.journal.tl
}

func (s *state) summary() Summary {
	sum := Summary{EndS: s.queue.now, StepS: s.queue.now, Steps: len(s.journal.tl.Steps), Instructions: s.count,
		Over: s.memory.over}
	for w, a := range s.memory.accounts {
		sum.TotalS = append(sum.TotalS, s.journal.busyS[w])
		sum.PeakBytes = append(sum.PeakBytes, a.peak)
		sum.PeakActivations = append(sum.PeakActivations, a.mostMic)
		sum.PeakGradients = append(sum.PeakGradients, a.peakGradients)
	}
	sum.BusyS = sum.TotalS
	switch {
	case sum.Steps > 0 && s.terms.p.Served():
		sum.average()
	case sum.Steps > 0:
		sum.typical(&s.journal, s.terms.costs.Cores.Scarce(s.terms.p.Workers))
	}
	sum.idle()
	return sum
}

// typical sets the medians over all steps but the first. The time of such a step counts from the end of the previous
// step. If there is only one step, its length is used. Steps that share cores may take longer and shorter in turn, so
// their median may be less than the work in a step needs. StepS is therefore at least the largest of the workers'
// medians (BusyS), and at least the sum of those of a shared pool's workers, divided by the pool's cores.
func (sum *Summary) typical(j *journal, shared machine.Pools) {
	steps := j.tl.Steps
	took := []float64{steps[0].EndS - steps[0].StartS}
	if len(steps) > 1 {
		took = nil
		for i, m := range steps[1:] {
			took = append(took, m.EndS-steps[i].EndS)
		}
	}
	sum.StepS, sum.BusyS = stats.Median(took), make([]float64, len(j.busyS))
	busy := make([]float64, len(took))
	for w := range sum.BusyS {
		for i, m := range steps[len(steps)-len(took):] {
			busy[i] = j.steps[m.Step].busyS[w]
		}
		sum.BusyS[w] = stats.Median(busy)
	}
	sum.StepS = max(sum.StepS, slices.Max(sum.BusyS))
	sum.share(shared)
}

// share makes StepS at least the time that shared cores need for the work of a step.
func (sum *Summary) share(shared machine.Pools) {
	for _, pool := range shared {
		busy := 0.0
		for w, s := range sum.BusyS {
			if pool.Workers == nil || slices.Contains(pool.Workers, w) {
				busy += s
			}
		}
		sum.StepS = max(sum.StepS, busy/float64(pool.Cores))
	}
}

// average sets the means over all steps, for workers without common steps. Several of
// their steps run at the same time, each worker is in one of them, and they end in no fixed order.
func (sum *Summary) average() {
	n := float64(sum.Steps)
	sum.StepS, sum.BusyS = sum.EndS/n, make([]float64, len(sum.TotalS))
	for w, total := range sum.TotalS {
		sum.BusyS[w] = total / n
	}
}

// idle sets the bubble of a step.
func (sum *Summary) idle() {
	busy := 0.0
	for _, b := range sum.BusyS {
		busy += b
	}
	if sum.StepS > 0 {
		sum.Bubble = max(0, 1-busy/(float64(len(sum.BusyS))*sum.StepS)) // rounding can leave -0
	}
}

// Steadily returns the Summary of a stream's average step. `half` is the Summary of a shorter run of the stream. The
// difference of the two runs is divided by the number of steps that `half` lacks. A step takes at least as long as any
// worker computes in it, and as long as the workers of a pool in `shared` compute in it on the pool's cores.
func (sum Summary) Steadily(half Summary, shared machine.Pools) Summary {
	more := float64(sum.Steps - half.Steps)
	if more <= 0 {
		return sum
	}
	sum.StepS, sum.BusyS = (sum.EndS-half.EndS)/more, make([]float64, len(sum.TotalS))
	for w := range sum.BusyS {
		sum.BusyS[w] = (sum.TotalS[w] - half.TotalS[w]) / more
		sum.StepS = max(sum.StepS, sum.BusyS[w])
	}
	sum.share(shared)
	sum.idle()
	return sum
}
