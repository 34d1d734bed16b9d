package sim

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/sim/memory"
)

// StageCost is the cost of one micro-batch, or of its slice under Split, on one replica of a stage. Times are in
// seconds on the worker itself. Bytes are as an allocator counts them.
type StageCost struct {
	ForwardS, BackwardS float64
	InputS, WeightS     float64 // the halves of a split backward
	// PairedS is how long a forward and the backward of its pair take together. Only Programs that make pairs use it,
	// on devices that compute both at once. 0 means that the two run one after the other.
	PairedS float64
	profile.UpdateTimes
	EvaluateS float64
	SaveS     float64 // writing a checkpoint

	memory.Held
	GradientBytes int64 // sent to the previous stage
	Packed        Packed

	AllReduceS float64 // to sum gradients over the stage's replicas
	// GatherS is the time to gather a stage's weights after their update, under zero1 and zero2.
	GatherS float64
	// Unhidden is the part, 0 to 1, of a gradient sum that is not hidden: it slows down what the same devices compute
	// meanwhile.
	Unhidden float64
	// Shares are the gradients that are summed during the stage's last backward. WeightShares are those summed during
	// the last weights' half of a split backward. The rest is summed afterwards.
	Shares, WeightShares []Share
	whole, halves        layerwise // the input from which CostsOf made Shares and WeightShares
	TiedS                float64   // sum of tied gradients
	NormS                float64   // to compute the gradient norm over all stages
}

// Packed says how many bytes a stage's messages have when their values are packed into fewer bits. The bytes are those
// of a micro-batch, sent and received. Packed also holds the times to pack and unpack. The zero value means that
// tensors are sent as they are.
type Packed struct {
	On                             bool
	ActivationBytes, GradientBytes int64   // sent to the next stage, and to the previous one
	InputBytes, BackBytes          int64   // of activations and of gradients that the stage receives
	ActivationS, GradientS         float64 // to pack the activations and the gradients that the stage sends
	InputS, BackS                  float64 // to unpack the activations and the gradients that the stage receives
}

// Sends returns the bytes that a stage sends for a micro-batch: activations for SF, gradients for SB.
func (c *StageCost) Sends(kind schedule.Kind) int64 {
	switch bytes, _, packed := c.Packed.of(kind); {
	case packed:
		return bytes
	case kind == schedule.SB:
		return c.GradientBytes
	}
	return c.ActivationBytes
}

// of returns the packed bytes of a send or receive and the time to pack or unpack them. `is` says whether the
// instruction is a send or receive of packed values.
func (k *Packed) of(kind schedule.Kind) (bytes int64, takesS float64, is bool) {
	switch kind {
	case schedule.SF:
		return k.ActivationBytes, k.ActivationS, k.On
	case schedule.SB:
		return k.GradientBytes, k.GradientS, k.On
	case schedule.RF:
		return k.InputBytes, k.InputS, k.On
	case schedule.RB:
		return k.BackBytes, k.BackS, k.On
	}
	return 0, 0, false
}

// Costs holds what every instruction of a Program costs.
type Costs struct {
	Stages [][]StageCost // [stage][replica]; further replicas cost the same as the last one given
	// Transfer returns how long a message takes between two workers. latencyS may overlap with other messages; linkS is
	// the time the link is occupied. nil means no time.
	Transfer func(from, to int, bytes int64) (latencyS, linkS float64)
	// Links returns the links that a transfer occupies, all at once. Transfers with a link in common wait for each other,
	// first come, first served. nil gives every ordered pair of workers its own link. The caller does not change the
	// result.
	Links func(from, to int) [][2]int
	// OneMemory reports whether a message takes up the receiver's memory as soon as it is sent. nil means never.
	OneMemory func(from, to int) bool
	// Occupies reports whether neither worker computes during a transfer; nil means never.
	Occupies func(from, to int) bool
	// Streams reports whether a worker's device sends a message while it computes the message; nil means never.
	Streams func(worker int) bool
	// SendS is the time that a worker's host spends on a send, and ReceiveS on a receive. A message leaves when its
	// send begins. If the device runs behind its host, the message leaves once it is issued. These times are costs,
	// like the time of a forward, and not noise. No shipped model is known whose fastest plan they change.
	SendS, ReceiveS float64
	// IssueS is the time, in seconds, that a host needs to give its device a computation. 0 means that a device is its
	// own host. Devices run behind their hosts if IssueS or Options.Ahead is over 0.
	IssueS float64
	// Ports holds the loads that transfers put on ports that they share. nil means that messages and gradient sums do
	// not slow each other down.
	Ports *Ports
	// Cores are the cores that workers share.
	Cores machine.Pools
	// Noise is what disturbs computations on a real machine. Run uses it only if the caller sets Options.Vary from it.
	Noise Noise
}

func (c *Costs) of(stage, replica int) *StageCost {
	replicas := c.Stages[stage]
	return &replicas[min(replica, len(replicas)-1)]
}

// on returns the costs of an instruction's replica. A server's costs are those of the last device of its stage,
// which comes after the trainers' devices.
func (c *Costs) on(p *schedule.Program, in schedule.Instruction) *StageCost {
	if p.IsServer(int(in.Pipeline)) {
		return c.of(int(in.Stage), p.Trainers())
	}
	return c.of(int(in.Stage), int(in.Replica))
}

func (c *Costs) oneMemory(from, to int) bool { return c.OneMemory != nil && c.OneMemory(from, to) }

// Uniform returns costs to compare with closed formulas. Every stage takes forwardS and backwardS, every transfer takes
// transferS without occupying the link, and every micro-batch holds one byte.
func Uniform(stages int, forwardS, backwardS, transferS float64) Costs {
	c := Costs{Transfer: func(int, int, int64) (float64, float64) { return transferS, 0 }}
	for range stages {
		c.Stages = append(c.Stages, []StageCost{{
			ForwardS: forwardS, BackwardS: backwardS, InputS: backwardS / 2, WeightS: backwardS / 2, EvaluateS: forwardS,
			Held: memory.Held{SavedBytes: 1, PendingBytes: 1},
		}})
	}
	return c
}

// Streaming returns costs on devices that transfer while they compute (BaPipe §3.2.1). A message occupies its link for
// linkS seconds. It begins when its computation begins or, if the link is then taken, once the link is free.
func Streaming(c Costs, linkS float64) Costs {
	c.Transfer = func(int, int, int64) (float64, float64) { return 0, linkS }
	c.Streams = func(int) bool { return true }
	return c
}

// CostError reports a cost that cannot be simulated.
type CostError struct {
	Stage, Replica int
	Field          string
	Value          float64
}

func (e *CostError) Error() string {
	what := "a number, 0 or more"
	if e.Value > mostBytes && !math.IsInf(e.Value, 0) {
		what = "1 PiB at most"
	}
	return fmt.Sprintf("sim: stage %d, replica %d: %s is %v; it must be %s", e.Stage, e.Replica, e.Field, e.Value, what)
}

// mostBytes is the largest size allowed, so that the sum over thousands of micro-batches does not overflow.
const mostBytes = 1 << 50

// check refuses costs that do not cover a Program's stages, costs that are negative or not finite, and sizes over
// mostBytes. The times of transfers are checked in transferS when they are needed.
func (c *Costs) check(p *schedule.Program) error {
	if len(c.Stages) != p.Stages {
		return fmt.Errorf("sim: costs of %d stages for program %s of %d", len(c.Stages), p.Name, p.Stages)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"a send", c.SendS}, {"a receive", c.ReceiveS}, {"issuing a computation", c.IssueS}} {
		if bad(f.value) {
			return fmt.Errorf("sim: %s is %v; it must be a number, 0 or more", f.name, f.value)
		}
	}
	if c.Ports != nil {
		if err := c.Ports.check(p.Stages, c.Streams != nil); err != nil {
			return err
		}
	}
	for s, replicas := range c.Stages {
		if len(replicas) == 0 {
			return fmt.Errorf("sim: stage %d has no costs; give one for each replica, or one for all", s)
		}
		for r := range replicas {
			if field, value := replicas[r].wrong(); field != "" {
				return &CostError{Stage: s, Replica: r, Field: field, Value: value}
			}
		}
	}
	return nil
}

// wrong returns the first of a stage's costs that cannot be simulated, or no name if all can.
func (k *StageCost) wrong() (field string, value float64) {
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"forward", k.ForwardS}, {"backward", k.BackwardS}, {"pair", k.PairedS}, {"input gradient", k.InputS},
		{"weight gradient", k.WeightS},
		{"evaluation", k.EvaluateS}, {"checkpoint", k.SaveS},
		{"all-reduce", k.AllReduceS}, {"part of an all-reduce", k.Unhidden},
		{"gather of weights", k.GatherS},
		{"sum of tied gradients", k.TiedS}, {"norm", k.NormS},
		{"packing activations", k.Packed.ActivationS}, {"packing gradients", k.Packed.GradientS},
		{"unpacking activations", k.Packed.InputS}, {"unpacking gradients", k.Packed.BackS},
		{"update", k.UpdateS}, {"elastic update", k.PulledUpdateS}, {"reference update", k.ReferenceUpdateS},
	} {
		if bad(f.value) {
			return f.name, f.value
		}
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"activation bytes", k.ActivationBytes}, {"bytes without gradient", k.NoGradientBytes},
		{"gradient bytes", k.GradientBytes}, {"saved bytes", k.SavedBytes},
		{"packed activations", k.Packed.ActivationBytes}, {"packed gradients", k.Packed.GradientBytes},
		{"packed activations received", k.Packed.InputBytes}, {"packed gradients received", k.Packed.BackBytes},
		{"input bytes", k.InputBytes},
		{"pending bytes", k.PendingBytes}, {"fixed bytes", k.FixedBytes}, {"weight bytes", k.WeightBytes},
		{"parameter bytes", k.ParameterBytes},
		{"reference bytes", k.ReferenceBytes}, {"frozen bytes", k.FrozenBytes},
		{"bytes of gradients that the first half makes", k.WholeBytes}, {"bytes of the largest layer", k.LayerBytes},
		{"peak of a forward", k.ForwardPeak}, {"peak of an evaluation", k.EvaluatePeak},
		{"peak of an update", k.UpdatePeak},
		{"peak of the first backward", k.FirstBackwardPeak}, {"peak of a backward", k.BackwardPeak},
		{"peak of the first input gradient", k.FirstInputPeak}, {"peak of an input gradient", k.InputPeak},
		{"peak of the first weight gradient", k.FirstWeightPeak}, {"peak of a weight gradient", k.WeightPeak},
	} {
		if f.value < 0 || f.value > mostBytes {
			return f.name, float64(f.value)
		}
	}
	for _, shares := range [][]Share{k.Shares, k.WeightShares} {
		for _, share := range shares {
			if bad(share.At) || bad(share.Part) {
				return "share of an all-reduce", max(share.At, share.Part)
			}
		}
	}
	return "", 0
}

// transferS returns the time of a transfer. It refuses times that are negative or not finite.
func (c *Costs) transferS(t transfer) (latency, link float64, err error) {
	if c.Transfer == nil {
		return 0, 0, nil
	}
	latency, link = c.Transfer(t.from, t.to, t.bytes)
	if bad(latency) || bad(link) {
		err = fmt.Errorf("sim: %v from worker %d to worker %d, %d bytes, is on its way for %v s and takes the link for %v "+
			"s; both must be numbers, 0 or more", t.in, t.from, t.to, t.bytes, latency, link)
	}
	return latency, link, err
}

func bad(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) || x < 0 }

// schedule.UpdateCost describes an update in multiples of a stage's costs. The functions below compute its bytes and
// its time from these costs.

// fixedBytes returns the bytes of a stage that a pipeline holds throughout. They include no optimizer states for a
// reference, and none for a trainer that fetches its weights from a server.
func fixedBytes(p *schedule.Program, pipeline int, c *StageCost) int64 {
	if p.IsReference(pipeline) && p.Beside() { // the reference's thread updates one copy; pipelines read the other
		return 2*c.ReferenceBytes + c.FrozenBytes
	}
	if p.IsReference(pipeline) || p.Served() && !p.IsServer(pipeline) {
		return c.ReferenceBytes + c.FrozenBytes
	}
	return c.FixedBytes
}

// changing returns the bytes that training changes: parameters, optimizer states and buffers. They are a part of the
// bytes that a stage always holds.
func (c *StageCost) changing() int64 { return c.FixedBytes - c.FrozenBytes }

// updatePeak returns the peak of an update, above what was held before it.
func (c *StageCost) updatePeak(cost schedule.UpdateCost) int64 {
	return cost.PeakWhole*c.changing() + cost.PeakLayer*c.LayerBytes + cost.PeakStep*c.UpdatePeak
}

// updateS returns how long an update computes. If the costs give no other times, every update takes UpdateS.
func (c *StageCost) updateS(cost schedule.UpdateCost) float64 {
	switch {
	case cost.Work == schedule.PullWork:
		return max(c.UpdateS, c.PulledUpdateS)
	case cost.Work == schedule.TakeWork && c.ReferenceUpdateS > 0:
		return float64(cost.Times) * c.ReferenceUpdateS
	}
	return c.UpdateS
}
