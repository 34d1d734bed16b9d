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
	// next; of a single step its length; of workers that go their own way (asp) the mean; EndS where nothing trains.
	StepS float64 `json:"step_s"`
	Steps int     `json:"steps"`
	// BusyS is computing, by worker: the median over the same steps. Where times vary a worker that never waits can come
	// to more than the median of steps that overlap; a step then takes as long.
	BusyS           []float64 `json:"busy_s"`
	TotalS          []float64 `json:"-"`                // computing, by worker, from the start to the end
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

// stepTaken is a step while it is simulated.
type stepTaken struct {
	trace.StepMark
	busyS []float64 // by worker
}

// markStart makes sure the step that a worker computes for has begun; the clock never goes back, so
// whoever comes first has the start.
func (s *state) markStart(w int, in schedule.Instruction) {
	me, step := &s.workers[w], s.stepOf(in)
	if in.Kind == schedule.EV || me.step != nil && me.step.Step == step {
		return
	}
	if me.step = s.steps[step]; me.step == nil {
		me.step = &stepTaken{trace.StepMark{Step: step, StartS: s.now, EndS: s.now}, make([]float64, len(s.workers))}
		s.steps[step] = me.step
	}
}

// markEnd ends the step for now with the computation that markStart was told of last, which took so long.
func (s *state) markEnd(w int, in schedule.Instruction, tookS float64) {
	s.workers[w].busyS += tookS
	if in.Kind != schedule.EV {
		step := s.workers[w].step
		step.EndS = s.now
		step.busyS[w] += tookS
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
	for _, m := range s.steps {
		s.tl.Steps = append(s.tl.Steps, m.StepMark)
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
	for w := range s.workers {
		me := &s.workers[w]
		sum.TotalS = append(sum.TotalS, me.busyS)
		sum.PeakBytes = append(sum.PeakBytes, me.memory.peak)
		sum.PeakActivations = append(sum.PeakActivations, me.memory.mostMic)
	}
	sum.BusyS = sum.TotalS
	switch {
	case sum.Steps > 0 && s.p.Served():
		sum.average()
	case sum.Steps > 0:
		sum.typical(s)
	}
	sum.idle()
	return sum
}

// typical fills in medians: over all steps but the first, from the end of one to the end of the next; of one step its
// own length.
func (sum *Summary) typical(s *state) {
	steps := s.tl.Steps
	took := []float64{steps[0].EndS - steps[0].StartS}
	if len(steps) > 1 {
		took = nil
		for i, m := range steps[1:] {
			took = append(took, m.EndS-steps[i].EndS)
		}
	}
	sum.StepS, sum.BusyS = stats.Median(took), make([]float64, len(s.workers))
	busy := make([]float64, len(took))
	for w := range sum.BusyS {
		for i, m := range steps[len(steps)-len(took):] {
			busy[i] = s.steps[m.Step].busyS[w]
		}
		sum.BusyS[w] = stats.Median(busy)
	}
	sum.StepS = max(sum.StepS, slices.Max(sum.BusyS))
}

// average fills in means over all steps: workers that go their own way end steps in no order, and each computes in
// one of several.
func (sum *Summary) average() {
	n := float64(sum.Steps)
	sum.StepS, sum.BusyS = sum.EndS/n, make([]float64, len(sum.TotalS))
	for w, total := range sum.TotalS {
		sum.BusyS[w] = total / n
	}
}

// idle fills in the bubble of a step.
func (sum *Summary) idle() {
	busy := 0.0
	for _, b := range sum.BusyS {
		busy += b
	}
	if sum.StepS > 0 {
		sum.Bubble = max(0, 1-busy/(float64(len(sum.BusyS))*sum.StepS)) // rounding can leave -0
	}
}

// Steadily is the Summary of a stream: a step and its computing are what each one more adds on average, to a stream of
// which half is so much shorter. A step takes no less than a worker computes in it.
func (sum Summary) Steadily(half Summary) Summary {
	more := float64(sum.Steps - half.Steps)
	if more <= 0 {
		return sum
	}
	sum.StepS, sum.BusyS = (sum.EndS-half.EndS)/more, make([]float64, len(sum.TotalS))
	for w := range sum.BusyS {
		sum.BusyS[w] = (sum.TotalS[w] - half.TotalS[w]) / more
		sum.StepS = max(sum.StepS, sum.BusyS[w])
	}
	sum.idle()
	return sum
}
