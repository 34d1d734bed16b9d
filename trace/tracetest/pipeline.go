// Package tracetest makes Timelines with known times, for tests of packages that read or draw Timelines.
//
// In: the times of a pipeline's stages. Out: the Timeline of its 1F1B steps. It does not simulate: no cores are shared,
// links do not queue, and a plain recurrence gives each event's time. Refused: nothing; a pipeline without stages has
// no events.
package tracetest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/millrace-ml/millrace/trace"
)

// Pipeline describes a Timeline to make, with one worker per stage.
type Pipeline struct {
	Source       string
	ForwardS     []float64 // by stage, of one micro-batch
	BackwardS    []float64 // by stage
	UpdateS      float64
	TransferS    float64 // time of a message between neighbours
	MicroBatches int
	Steps        int
	// Noise is the relative spread of compute and transfer times, drawn from Seed; 0 means none.
	Noise float64
	Seed  uint64

	BaseBytes       int64 // parameters, gradients and so on, on every worker
	ActivationBytes int64 // held for each micro-batch between its forward and backward
}

// TwoStages returns a pipeline that resembles a small transformer.
func TwoStages() Pipeline {
	return Pipeline{Source: "sim", ForwardS: []float64{.031, .034}, BackwardS: []float64{.060, .063}, UpdateS: .006,
		TransferS: .0007, MicroBatches: 8, Steps: 1, BaseBytes: 92 << 20, ActivationBytes: 21 << 20}
}

// FourStages returns a pipeline with a slow second stage.
func FourStages() Pipeline {
	return Pipeline{Source: "sim", ForwardS: []float64{.014, .021, .015, .016},
		BackwardS: []float64{.028, .041, .029, .031}, UpdateS: .004, TransferS: .0012,
		MicroBatches: 8, Steps: 1, BaseBytes: 48 << 20, ActivationBytes: 11 << 20}
}

// Timeline returns the pipeline's run in 1F1B. Stage i has as many warm-up forwards as there are stages from i to the
// end.
func (p Pipeline) Timeline() *trace.Timeline {
	r := &recorder{
		Pipeline: p, random: rand.New(rand.NewPCG(p.Seed, 1)), done: map[string]float64{},
		t: &trace.Timeline{
			Version: trace.Version, Source: p.Source, Model: "gpt", Workers: len(p.ForwardS), Stages: len(p.ForwardS),
			ThreadsPerWorker: 1, Events: []trace.Event{},
		},
	}
	n := len(p.ForwardS)
	r.now, r.held = make([]float64, n), make([]int, n)
	r.t.PeakBytes, r.t.PeakActivations = make([]int64, n), make([]int, n)
	for step := range p.Steps {
		r.step(step)
	}
	r.t.Sort()
	return r.t
}

type recorder struct {
	Pipeline
	t      *trace.Timeline
	random *rand.Rand
	now    []float64          // by worker: end of the last recorded instruction
	held   []int              // by worker: micro-batches in flight
	done   map[string]float64 // by send: when its message arrives
}

type item struct {
	kind  string
	micro int
}

func (r *recorder) step(step int) {
	n := len(r.ForwardS)
	lists := make([][]item, n)
	for s := range n {
		lists[s] = order(min(n-s, r.MicroBatches), r.MicroBatches)
	}
	begin := 0.0
	for _, at := range r.now {
		begin = max(begin, at)
	}
	for s := range r.now {
		r.now[s] = begin
	}
	next := make([]int, n)
	for moved := true; moved; {
		moved = false
		for s := range n {
			for next[s] < len(lists[s]) && r.compute(step, s, lists[s][next[s]]) {
				next[s]++
				moved = true
			}
		}
	}
	end := begin
	for s := range n {
		r.event(trace.Event{Worker: s, Lane: trace.Compute, Kind: "U", Instruction: fmt.Sprintf("%dU%d", s, step), Step: step,
			ReadyS: r.now[s], StartS: r.now[s], EndS: r.now[s] + r.noisy(r.UpdateS)})
		end = max(end, r.now[s])
	}
	r.t.Steps = append(r.t.Steps, trace.StepMark{Step: step, StartS: begin, EndS: end})
	r.t.Losses = append(r.t.Losses, trace.Loss{Step: step,
		Value: 0.9 + 3.2*math.Exp(-float64(step)/40) + 0.04*r.random.NormFloat64()})
	if step%10 == 9 {
		right := 0.9 * (1 - math.Exp(-float64(step)/45))
		r.t.Evaluations = append(r.t.Evaluations, trace.Evaluation{Step: step, Loss: 1 + 3.2*math.Exp(-float64(step)/40),
			Correct: int(10000 * right), Samples: 10000})
	}
}

// order returns the list of one stage in 1F1B: k forwards, then backwards and forwards in turn.
func order(k, micro int) []item {
	var list []item
	f := 0
	for ; f < k; f++ {
		list = append(list, item{"F", f})
	}
	for b := range micro {
		list = append(list, item{"B", b})
		if f < micro {
			list = append(list, item{"F", f})
			f++
		}
	}
	return list
}

// compute places one forward or backward with its receive and its send. It returns false if its input does not exist
// yet.
func (r *recorder) compute(step, s int, it item) bool {
	id := step*r.MicroBatches + it.micro
	from, receive, send := s-1, "RF", "SF"
	length := r.ForwardS[s]
	if it.kind == "B" {
		from, receive, send, length = s+1, "RB", "SB", r.BackwardS[s]
	}
	if from >= 0 && from < len(r.ForwardS) {
		message := fmt.Sprintf("%d%s%d", from, send, id)
		arrived, sent := r.done[message]
		if !sent {
			return false
		}
		e := trace.Event{
			Worker: s, Lane: trace.Comm, Kind: receive, Instruction: fmt.Sprintf("%d%s%d", s, receive, id), Step: step,
			ReadyS: r.now[s], StartS: max(r.now[s], arrived), EndS: max(r.now[s], arrived),
		}
		if arrived > r.now[s] {
			e.BlockedBy = message
		}
		r.event(e)
	}
	r.event(trace.Event{
		Worker: s, Lane: trace.Compute, Kind: it.kind, Instruction: fmt.Sprintf("%d%s%d", s, it.kind, id), Step: step,
		ReadyS: r.now[s], StartS: r.now[s], EndS: r.now[s] + r.noisy(length),
	})
	if to := 2*s - from; to >= 0 && to < len(r.ForwardS) {
		text := fmt.Sprintf("%d%s%d", s, send, id)
		r.done[text] = r.now[s] + r.noisy(r.TransferS)
		r.t.Events = append(r.t.Events, trace.Event{Worker: s, Lane: trace.Comm, Kind: send, Instruction: text, Step: step,
			ReadyS: r.now[s], StartS: r.now[s], EndS: r.done[text], Bytes: 2 << 20})
	}
	return true
}

// event appends an event that takes the worker's time.
func (r *recorder) event(e trace.Event) {
	r.t.Events = append(r.t.Events, e)
	r.now[e.Worker] = e.EndS
	at := e.StartS
	switch e.Kind {
	case "F":
		r.held[e.Worker]++
	case "B":
		r.held[e.Worker]--
		at = e.EndS
	default:
		return
	}
	bytes := r.BaseBytes + int64(r.held[e.Worker])*r.ActivationBytes
	r.t.Memory = append(r.t.Memory, trace.MemorySample{Worker: e.Worker, AtS: at, Bytes: bytes})
	r.t.PeakBytes[e.Worker] = max(r.t.PeakBytes[e.Worker], bytes)
	r.t.PeakActivations[e.Worker] = max(r.t.PeakActivations[e.Worker], r.held[e.Worker])
}

func (r *recorder) noisy(s float64) float64 {
	if r.Noise == 0 {
		return s
	}
	return s * (1 + r.Noise*math.Abs(r.random.NormFloat64()))
}

// OnTwoHosts puts each worker in its own process: the first half on host "a", the others on "b". The Timeline says that
// the clocks agree within withinS seconds. All events on host b are shifted by skewS seconds.
func OnTwoHosts(t *trace.Timeline, withinS, skewS float64) {
	t.Processes, t.Places = nil, nil
	for w := range t.Workers {
		p := trace.Process{Host: "a"}
		if w > 0 {
			p.ErrorS = withinS / 2
		}
		if w >= t.Workers/2 {
			p.Host, p.OffsetS, p.Drift = "b", -1.5, 1e-5
		}
		t.Processes, t.Places = append(t.Processes, p), append(t.Places, trace.Place{Process: w})
	}
	for i := range t.Events {
		if e := &t.Events[i]; e.Worker >= t.Workers/2 {
			e.ReadyS, e.StartS, e.EndS = e.ReadyS+skewS, e.StartS+skewS, e.EndS+skewS
		}
	}
	t.Sort()
}
