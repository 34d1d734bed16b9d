package shape

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile/kernels"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune/roles"
)

// Prediction is the predicted time and memory of a shape's step.
type Prediction struct {
	Shape       Shape   `json:"shape"`
	StepS       float64 `json:"step_s"`
	Parts       Parts   `json:"parts"`
	MemoryBytes []int64 `json:"memory_bytes"` // bytes on one device of each stage
	// ActivationBytes is the part of MemoryBytes that micro-batches in flight have saved.
	ActivationBytes []int64 `json:"activation_bytes"`
	Fits            bool    `json:"fits"`
	// Played is the number of simulated computations.
	Played int `json:"simulated_computations"`

	FLOPs float64 `json:"flops"` // of the model, forward and backward, without recompute
}

// Parts divides a step's time. The parts add up to the step.
type Parts struct {
	KernelsS      float64 `json:"kernels_s"` // of the busiest stage, without the parts below
	kernels.Spent         // divides KernelsS by what limits the kernels
	SumsS         float64 `json:"sums_s"`       // sums in tensor-parallel groups
	AgainS        float64 `json:"again_s"`      // recompute
	GatherS       float64 `json:"gather_s"`     // unhidden collectives of zero3, or of zero2 for each micro-batch
	BubbleS       float64 `json:"bubble_s"`     // waits of the busiest stage, also for messages if TransfersS is 0
	TransfersS    float64 `json:"transfers_s"`  // waits that messages between stages add; only from Explain
	ContentionS   float64 `json:"contention_s"` // lost at shared ports; the part inside the pipeline only from Explain
	GradientsS    float64 `json:"gradients_s"`  // unhidden sums over replicas and gathers of weights, and what they slow
	UpdateS       float64 `json:"update_s"`
	FixedS        float64 `json:"fixed_s"`
}

// Predict returns the prediction of a shape's step on a cluster.
func Predict(m *model.Model, c *cluster.Cluster, s Shape) (*Prediction, error) {
	return predicted(m, c, s, false)
}

// Explain is like Predict, but also simulates the step without messages to separate their part from the bubble.
func Explain(m *model.Model, c *cluster.Cluster, s Shape) (*Prediction, error) {
	return predicted(m, c, s, true)
}

func predicted(m *model.Model, c *cluster.Cluster, s Shape, transfers bool) (*Prediction, error) {
	a, err := lay(m, c, s, nil)
	if err != nil {
		return nil, err
	}
	return a.predict(m, transfers)
}

func (a *laid) predict(m *model.Model, transfers bool) (*Prediction, error) {
	s, l, stages := a.s, a.links, a.stages
	out := &Prediction{Shape: s}
	for i := range m.Layers {
		layer := &m.Layers[i]
		out.FLOPs += float64(s.Batch) * float64(layer.ForwardFLOPs+layer.InputFLOPs+layer.WeightFLOPs)
	}
	pipelineS, err := s.play(stages, l)
	if err != nil {
		return nil, err
	}
	busiest := out.busiest(s, stages)
	out.Parts.BubbleS = pipelineS - busiest
	out.Parts.GradientsS, out.Parts.UpdateS = s.flush(stages, l, a.device, false)
	if l.c.Contends() {
		contended, _ := s.flush(stages, l, a.device, true)
		out.Parts.ContentionS = contended - out.Parts.GradientsS
	}
	out.Parts.FixedS = a.device.Kernels.StepS
	out.Played = l.played
	out.StepS = pipelineS + out.Parts.GradientsS + out.Parts.ContentionS + out.Parts.UpdateS + out.Parts.FixedS
	if transfers && s.Stages > 1 {
		if err := out.waits(stages, l, pipelineS); err != nil {
			return nil, err
		}
	}
	return out, out.memory(a)
}

// waits divides the bubble of a pipeline. It separates the time that messages take, and the additional time that they
// take because they share ports.
func (out *Prediction) waits(stages []stage, l *links, pipelineS float64) error {
	p := &out.Parts
	apartS := pipelineS
	var err error
	if l.c.Contends() {
		l.apart = true
		if apartS, err = l.s.play(stages, l); err != nil {
			return err
		}
		lost := max(0, min(pipelineS-apartS, p.BubbleS))
		p.ContentionS, p.BubbleS = p.ContentionS+lost, p.BubbleS-lost
		l.apart = false
	}
	l.free = true
	without, err := l.s.play(stages, l)
	l.free = false
	p.TransfersS = max(0, min(apartS-without, p.BubbleS))
	p.BubbleS -= p.TransfersS
	return err
}

// stage is a virtual stage on one device, with its times for one micro-batch.
type stage struct {
	unit
	worker int
	gather float64 // part of the times: collectives that are not hidden
	tied   float64 // number of parameters that another device owns; `parameters` leaves them out
}

// stages adds up the units of each stage. Parameters that units of one device share count once.
func (s Shape) stages(units []unit, cuts []int, l *links) []stage {
	placement := s.placement()
	out := make([]stage, len(cuts)-1)
	home := make([]int, len(units)) // worker of each unit
	for k := range out {
		for i := cuts[k]; i < cuts[k+1]; i++ {
			home[i] = placement[k][0]
		}
	}
	for k := range out {
		st := &out[k]
		st.worker = placement[k][0]
		for _, u := range units[cuts[k]:cuts[k+1]] {
			forward, input, gather := l.sharded(u)
			st.forward, st.input, st.weight = st.forward+forward, st.input+input, st.weight+u.weight
			st.spent = st.spent.Plus(u.spent, 1)
			st.gather, st.summed, st.again = st.gather+gather, st.summed+u.summed, st.again+u.again
			st.pending = max(st.pending, u.pending)
			st.parameters, st.boundary = st.parameters+u.parameters, u.boundary
			for owner, n := range u.shared {
				if home[owner] == st.worker {
					st.parameters -= n
				} else {
					st.tied += n
				}
			}
		}
	}
	return out
}

// busiest fills in the parts of the stage that computes longest, and returns its compute time.
func (out *Prediction) busiest(s Shape, stages []stage) float64 {
	of := make([]stage, s.Stages)
	for _, st := range stages {
		w := &of[st.worker]
		w.forward, w.input, w.weight = w.forward+st.forward, w.input+st.input, w.weight+st.weight
		w.spent = w.spent.Plus(st.spent, 1)
		w.gather, w.summed, w.again = w.gather+st.gather, w.summed+st.summed, w.again+st.again
	}
	n, most := float64(s.MicroBatches()), 0.0
	for _, w := range of {
		if took := n * (w.forward + w.input + w.weight); took > most {
			most = took
			p := &out.Parts
			p.SumsS, p.AgainS, p.GatherS = n*w.summed, n*w.again, n*w.gather
			p.KernelsS = most - p.SumsS - p.AgainS - p.GatherS
			p.Spent = kernels.Spent{}.Plus(w.spent, n)
		}
	}
	return most
}

// placement returns the worker of each virtual stage.
func (s Shape) placement() [][]int {
	if f, err := family.Named(s.Schedule); err == nil && s.Stages > 1 {
		return f.Placement(s.Stages, s.Chunks)
	}
	return schedule.Wrap(s.Stages, s.Chunks)
}

// order is the key of a cached Program.
type order struct {
	schedule     string
	room, micros int
	free         bool // messages take no time
}

// program returns the order of computations in a step of `micros` micro-batches.
func (s Shape) program(micros int, stages []stage, l *links) (*schedule.Program, error) {
	key := order{s.Schedule, s.Room, micros, l.free}
	if p, ok := l.orders[key]; ok {
		return p, nil
	}
	p, err := s.written(micros, stages, l)
	if err != nil {
		return nil, err
	}
	if l.orders == nil {
		l.orders = map[order]*schedule.Program{}
	}
	l.orders[key] = p
	return p, nil
}

func (s Shape) written(micros int, stages []stage, l *links) (*schedule.Program, error) {
	if s.Room > 0 && s.Stages > 1 {
		return s.roomy(micros, stages, l)
	}
	if s.Stages == 1 {
		s.Schedule, s.Chunks = roles.Pipelines().Name, 1
	}
	p, err := family.Generate(s.Schedule, schedule.Settings{Placement: s.placement(), MicroBatches: micros})
	if err != nil {
		return nil, fmt.Errorf("shape: %w", err)
	}
	return p, nil
}

// Uniform returns the step of a shape's schedule if all stages take the same times. The times are a forward and each
// half of a backward, all three summed over the chunks of a device, and a message. `pending` is the fraction of what
// a forward saves that the second half needs. Uniform needs no model and no cluster.
func Uniform(s Shape, forwardS, inputS, weightS, transferS, pending float64) (stepS float64, err error) {
	s = s.filled()
	if err := s.ordered(); err != nil {
		return 0, err
	}
	c := &cluster.Cluster{Name: "uniform", Levels: []cluster.Level{{Size: s.Stages, BandwidthBytesPerSecond: 1,
		LatencyS: transferS}}, Devices: make([]string, s.Stages)}
	l := links{c: c, s: s}
	var stages []stage
	n := float64(s.Chunks)
	for _, on := range s.placement() {
		stages = append(stages, stage{worker: on[0], unit: unit{forward: forwardS / n, input: inputS / n,
			weight: weightS / n, pending: pending}})
	}
	return s.play(stages, &l)
}

// mostPlayed is the largest number of computations of a step that is simulated whole.
const mostPlayed = 1 << 15

// few returns the number of micro-batches in the shorter of two simulated steps. The longer step has one more
// micro-batch for each stage. Together they predict a long step: both reach the steady state, in which every further
// micro-batch adds the same time and memory. ok is false if a step of so many replicas is short enough to be simulated
// whole.
func (s Shape) few(replicas int) (micros int, ok bool) {
	m, p := s.MicroBatches(), s.Stages
	micros = m%p + 6*p
	return micros, 2*m*p*s.Chunks*replicas > mostPlayed && micros+p < m
}

// settled returns a value that grows linearly with the micro-batches of this many replicas. For a long step it
// extrapolates from two shorter ones.
func (s Shape) settled(replicas int, of func(micros int) (float64, error)) (float64, error) {
	few, ok := s.few(replicas)
	if !ok {
		return of(s.MicroBatches())
	}
	one, err := of(few)
	if err != nil {
		return 0, err
	}
	two, err := of(few + s.Stages)
	return two + (two-one)/float64(s.Stages)*float64(s.MicroBatches()-few-s.Stages), err
}

// play returns when the last backward of a step ends. With NoFlush it is the longest time of a worker from its first
// computation to its last.
func (s Shape) play(stages []stage, l *links) (float64, error) {
	if s.Stages == 1 {
		took := 0.0
		for _, st := range stages {
			took += st.forward + st.input + st.weight
		}
		return float64(s.MicroBatches()) * took, nil
	}
	return s.settled(len(l.together()), func(micros int) (float64, error) { return s.playOf(micros, stages, l) })
}

func (s Shape) playOf(micros int, stages []stage, l *links) (float64, error) {
	p, err := s.program(micros, stages, l)
	if err != nil {
		return 0, err
	}
	return s.simulated(p, stages, l)
}

// simulated returns the step time of an order of computations.
func (s Shape) simulated(p *schedule.Program, stages []stage, l *links) (float64, error) {
	for _, list := range p.Body {
		l.played += len(list)
	}
	p, err := lower.Lower(p, lower.Options{})
	if err != nil {
		return 0, fmt.Errorf("shape: %w", err)
	}
	costs := sim.Costs{}
	for _, st := range stages {
		costs.Stages = append(costs.Stages, []sim.StageCost{{ForwardS: st.forward, InputS: st.input, WeightS: st.weight,
			BackwardS: st.input + st.weight, GradientBytes: 1}})
		costs.Stages[len(costs.Stages)-1][0].ActivationBytes = 1
	}
	bytes, workers, replicas := stages[0].boundary, p.Workers, []int{0}
	if !l.free {
		replicas = l.together()
	}
	p = copies(p, len(replicas))
	type between struct{ from, to int }
	took, keys := map[between][2]float64{}, map[between][][2]int{}
	costs.Transfer = func(from, to int, _ int64) (float64, float64) {
		pair := between{from % workers, to % workers}
		if _, known := took[pair]; !known {
			latencyS, linkS := l.transfer(pair.from, pair.to, bytes)
			took[pair] = [2]float64{latencyS, linkS}
		}
		return took[pair][0], took[pair][1]
	}
	costs.Links = func(from, to int) [][2]int {
		pair := between{from, to}
		if _, known := keys[pair]; !known {
			keys[pair], _ = l.taken(from%workers, to%workers, replicas[from/workers])
		}
		return keys[pair]
	}
	if !l.free && slices.ContainsFunc(l.c.Levels, func(v cluster.Level) bool { return v.OccupiesDevice }) {
		costs.Occupies = func(from, to int) bool {
			a, b := l.rank(from%workers, replicas[from/workers]), l.rank(to%workers, replicas[to/workers])
			return l.c.Levels[l.c.LevelOf(a, b)].OccupiesDevice
		}
	}
	costs.Ports = l.ports(stages, bytes, replicas)
	line, sum, err := sim.Run(p, costs, sim.Options{Record: s.NoFlush})
	if err != nil {
		return 0, fmt.Errorf("shape: %w", err)
	}
	if s.NoFlush {
		return longest(line), nil
	}
	return sum.EndS, nil
}

// longest returns the longest time of a worker from its first computation to its last.
func longest(line *trace.Timeline) float64 {
	type span struct{ from, to float64 }
	of := map[int]*span{}
	for i := range line.Events {
		e := &line.Events[i]
		if !slices.Contains([]string{"F", "B", "I", "W"}, e.Kind) {
			continue
		}
		w := of[e.Worker]
		if w == nil {
			w = &span{from: e.StartS}
			of[e.Worker] = w
		}
		w.from, w.to = min(w.from, e.StartS), max(w.to, e.EndS)
	}
	most := 0.0
	for _, w := range of {
		most = max(most, w.to-w.from)
	}
	return most
}
