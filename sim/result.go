package sim

import (
	"cmp"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// Over is the first instruction, with absolute ids, in which a worker holds more than it has. Of a
// worker with too little for what it holds throughout there is none.
type Over struct {
	Worker      int
	Instruction schedule.Instruction
	Throughout  bool
	Bytes       int64
}

// Summary is what a run comes to.
type Summary struct {
	EndS float64 `json:"end_s"` // when the last instruction ended
	// StepS is the median over steps of the time from the end of one to the end of the
	// next; of a single step its length; EndS where nothing trains.
	StepS           float64   `json:"step_s"`
	Steps           int       `json:"steps"`
	BusyS           []float64 `json:"busy_s"`           // computing, by worker, in one step on average
	Bubble          float64   `json:"bubble"`           // 1 - sum(busy) / (workers x step)
	PeakBytes       []int64   `json:"peak_bytes"`       // by worker
	PeakActivations []int     `json:"peak_activations"` // by worker
	Instructions    int64     `json:"instructions"`
	Over            *Over     `json:"-"` // nil: every worker has enough
}

// stepOf is the training step that an instruction belongs to.
func (s *state) stepOf(in schedule.Instruction) int {
	if in.Kind.OfMinibatch() {
		return int(in.Micro)
	}
	return int(in.Micro / s.per)
}

// markStart makes sure the step that a worker computes for has begun; the clock never goes back, so
// whoever comes first has the start.
func (s *state) markStart(w int, in schedule.Instruction) {
	me, step := &s.workers[w], s.stepOf(in)
	if in.Kind == schedule.EV || me.mark != nil && me.mark.Step == step {
		return
	}
	if me.mark = s.marks[step]; me.mark == nil {
		me.mark = &trace.StepMark{Step: step, StartS: s.now, EndS: s.now}
		s.marks[step] = me.mark
	}
}

// markEnd ends the step for now with the computation that markStart was told of last.
func (s *state) markEnd(w int, in schedule.Instruction) {
	if in.Kind != schedule.EV {
		s.workers[w].mark.EndS = s.now
	}
}

// record files an instruction of the worker's own that has just ended.
func (s *state) record(w int, in schedule.Instruction) {
	me := &s.workers[w]
	ready, blocked := me.reached, me.blockedBy
	if s.behind && in.Kind.IsCompute() {
		ready, blocked = me.device.freeS, me.device.blockedBy
	}
	if me.started <= ready {
		blocked = ""
	}
	s.recordSpan(w, in, in.Kind.Lane(), ready, me.started, s.now, s.bytesOf(in), blocked)
}

func (s *state) recordSpan(w int, in schedule.Instruction, lane trace.Lane, ready, start, end float64, bytes int64,
	blocked string) {
	s.tl.Events = append(s.tl.Events, trace.Event{
		Worker: w, Lane: lane, Instruction: in.String(), Kind: in.Kind.String(), Step: s.stepOf(in),
		ReadyS: ready, StartS: start, EndS: end, Bytes: bytes, BlockedBy: blocked,
	})
}

func (s *state) timeline() *trace.Timeline {
	for _, m := range s.marks {
		s.tl.Steps = append(s.tl.Steps, *m)
	}
	slices.SortFunc(s.tl.Steps, func(a, b trace.StepMark) int { return a.Step - b.Step })
	for w := range s.workers {
		s.tl.PeakBytes = append(s.tl.PeakBytes, s.workers[w].memory.peak)
		s.tl.PeakActivations = append(s.tl.PeakActivations, s.workers[w].memory.mostMic)
	}
	// By start and worker, and otherwise as they happened: not Timeline.Sort, which puts
	// instructions that take no time in the order of their text.
	slices.SortStableFunc(s.tl.Events, func(a, b trace.Event) int {
		return cmp.Or(cmp.Compare(a.StartS, b.StartS), a.Worker-b.Worker)
	})
	return &s.tl
}

func (s *state) summary() Summary {
	sum := Summary{EndS: s.now, StepS: s.now, Steps: len(s.tl.Steps), Instructions: s.count, Over: s.over}
	if sum.Steps == 1 {
		sum.StepS = s.tl.Steps[0].EndS - s.tl.Steps[0].StartS
	}
	if sum.Steps > 1 {
		var took []float64
		for i, m := range s.tl.Steps[1:] {
			took = append(took, m.EndS-s.tl.Steps[i].EndS)
		}
		sum.StepS = stats.Median(took)
	}
	steps, busy := float64(max(1, sum.Steps)), 0.0
	for w := range s.workers {
		me := &s.workers[w]
		sum.BusyS = append(sum.BusyS, me.busy/steps)
		busy += me.busy / steps
		sum.PeakBytes = append(sum.PeakBytes, me.memory.peak)
		sum.PeakActivations = append(sum.PeakActivations, me.memory.mostMic)
	}
	if sum.StepS > 0 {
		sum.Bubble = max(0, 1-busy/(float64(len(s.workers))*sum.StepS)) // rounding can leave -0
	}
	return sum
}
