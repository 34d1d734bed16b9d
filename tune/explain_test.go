package tune

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/sim"
)

// explained searches, and explains the best plan.
func explained(t *testing.T, r Request) *Explanation {
	t.Helper()
	found, err := Search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	e, err := Explain(t.Context(), r, found.Best)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestWhatFillsADevice counts by hand what two workers hold, each with half of a model. A stage has two layers of
// 100 B of parameters, so a set of weights is 200 B. Every set that is updated has another 200 B of gradients and,
// with one optimizer state, 200 B of states.
func TestWhatFillsADevice(t *testing.T) {
	for _, of := range []struct {
		schedule                               string
		weights                                schedule.Policy
		weight, version, gradients, optimizers int64 // sets of 200 B on the first device
	}{
		{"1f1b", schedule.Sync, 1, 0, 1, 1},
		{"1f1b-rr", schedule.Stash, 1, 1, 1, 1},          // two minibatches in flight, so there is one older version
		{"1f1b-rr", schedule.DoubleBuffered, 1, 1, 1, 1}, // never more than one older version
		{"1f1b-rr", schedule.Latest, 1, 0, 1, 1},
		{"elastic", schedule.Elastic, 3, 0, 2, 2}, // two pipelines, and the reference without gradients and states
	} {
		t.Run(of.schedule+" "+string(of.weights), func(t *testing.T) {
			p := plantest.Chain(4, 1)
			p.OptimizerStates = 1
			r := Request{Profile: p, Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9), Batch: 4,
				Fix: Overrides{Stages: 2, Split: []int{2}, Schedule: of.schedule, Weights: of.weights, MicroBatch: 1}}
			e := explained(t, r)
			m := e.Memory[0]
			got := []int64{m.WeightBytes, m.VersionBytes, m.GradientBytes, m.OptimizerBytes}
			for i, sets := range []int64{of.weight, of.version, of.gradients, of.optimizers} {
				if got[i] != 200*sets {
					t.Errorf("holds %d B of weights, older versions, gradients and states, in flight %d; want %d sets of %d",
						got, m.MicrosInFlight, sets, i)
				}
			}
			if sum := got[0] + got[1] + got[2] + got[3] + m.ActivationBytes + m.BufferBytes; sum != m.PeakBytes {
				t.Errorf("the parts %+v make %d", m, sum)
			}
		})
	}
}

// TestGradientsAtThePeak: the first of two stages saves 2000 B for each micro-batch, at most two of which are in
// flight. Its 200 B of gradients exist once the first backward has ended. With up to two micro-batches the peak comes
// before that. With three it comes after that, when the third forward has ended.
func TestGradientsAtThePeak(t *testing.T) {
	for micros, want := range map[int][2]int64{1: {0, 2000}, 2: {0, 4000}, 3: {200, 4000}} {
		p := plantest.Chain(4, 1)
		for i := range p.Layers {
			p.Layers[i].Costs[0].SavedBytes = 1000
		}
		r := Request{Profile: p, Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9), Batch: micros,
			Fix: Overrides{Split: []int{2}, Schedule: "1f1b", MicroBatch: 1, Warmup: []int{min(2, micros), 1}}}
		e := explained(t, r)
		m := e.Memory[0]
		if got := [2]int64{m.GradientBytes, m.ActivationBytes}; got != want {
			t.Errorf("%d micro-batches: %v B of gradients and activations at the peak of %d B, not %v", micros, got,
				m.PeakBytes, want)
		}
	}
}

// TestOlderVersionsOfMinibatches: minibatches have eight micro-batches; four stages have 4, 3, 2 and 1 in flight. These
// are of two minibatches at most, and of one on the last stage. Vertical keeps as many versions everywhere.
func TestOlderVersionsOfMinibatches(t *testing.T) {
	for weights, want := range map[schedule.Policy][]int64{
		schedule.Stash: {1, 1, 1, 0}, schedule.Vertical: {1, 1, 1, 1}, schedule.DoubleBuffered: {1, 1, 1, 1}} {
		p := plantest.Chain(4, 1)
		r := Request{Profile: p, Cluster: cluster.Local("cpu", 4, 0, 0, 0, 1e9, 1e9), Batch: 8,
			Fix: Overrides{Split: []int{1, 2, 3}, Schedule: "1f1b-rr", Weights: weights, MicroBatch: 1}}
		e := explained(t, r)
		for i, m := range e.Memory {
			if m.VersionBytes != 100*want[i] {
				t.Errorf("%s: worker %d holds %d B of older versions, in flight %d; want %d of 100 B", weights, i,
					m.VersionBytes, m.MicrosInFlight, want[i])
			}
			sum := m.WeightBytes + m.FrozenBytes + m.VersionBytes + m.GradientBytes + m.OptimizerBytes + m.ActivationBytes +
				m.BufferBytes
			if sum != m.PeakBytes || m.ActivationBytes == 0 {
				t.Errorf("%s: worker %d: the parts %+v make %d", weights, i, m, sum)
			}
		}
	}
}

// TestAnOlderVersionInBF16: two layers of 50 parameters in bf16 are 200 B of weights. The layers have 400 B of
// gradients in 32 bits, and 800 B of states: copies in 32 bits, and one state. An older version is another 200 B of
// weights, and no copy in 32 bits.
func TestAnOlderVersionInBF16(t *testing.T) {
	p := plantest.Chain(4, 1)
	p.OptimizerStates, p.Precision = 1, "bf16"
	r := Request{Profile: p, Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9), Batch: 4,
		Fix: Overrides{Stages: 2, Split: []int{2}, Schedule: "1f1b-rr", Weights: schedule.Stash, MicroBatch: 1}}
	e := explained(t, r)
	m := e.Memory[0]
	got := []int64{m.WeightBytes, m.VersionBytes, m.GradientBytes, m.OptimizerBytes}
	if want := []int64{200, 200, 400, 800}; !slices.Equal(got, want) || m.MicrosInFlight != 2 {
		t.Errorf("weights, older versions, gradients and states of %v B, %d in flight; want %v and 2", got, m.MicrosInFlight,
			want)
	}
}

// TestTheBottleneckCountsWhatAStepHas counts by hand how often a stage's gradients are summed, and its links are used,
// in one step. A step takes 20 s, and devices compute for 2 s of it. A link takes 1 s for 100 bytes.
func TestTheBottleneckCountsWhatAStepHas(t *testing.T) {
	const sum = "the all-reduce of stage 0 over 2 devices takes %d %% of the step"
	const link = "the link between stages 0 and 1 (machine) is taken %d %% of the step"
	two := plan.NewElastic(2)
	for _, of := range []struct {
		name          string
		plan          plan.Plan
		first, second []int // devices
		bytes         int64 // bytes that the first stage sends for a micro-batch
		sumS          float64
		halfDuplex    bool
		want          string
	}{
		{"a step has one sum", plan.Plan{Schedule: "1f1b", Weights: "sync", MicroBatches: 6}, []int{0, 1}, []int{2}, 0, 8,
			false, fmt.Sprintf(sum, 40)},
		{"a minibatch of several micro-batches has one", plan.Plan{Schedule: "1f1b-rr", Weights: "2bw", MicroBatches: 6},
			[]int{0, 1}, []int{2}, 0, 8, false, fmt.Sprintf(sum, 40)},
		{"two minibatches in turn have one", plan.Plan{Schedule: "1f1b-rr", Weights: "stash", MicroBatches: 1},
			[]int{0, 1}, []int{2}, 0, 8, false, fmt.Sprintf(sum, 20)},
		{"every pipeline has one", plan.Plan{Schedule: "elastic", Weights: "elastic", MicroBatches: 6, Elastic: two},
			[]int{0, 1}, []int{2}, 0, 8, false, fmt.Sprintf(sum, 80)},
		{"every pipeline sends", plan.Plan{Schedule: "elastic", Weights: "elastic", MicroBatches: 6, Elastic: two},
			[]int{0}, []int{1}, 100, 0, false, fmt.Sprintf(link, 60) + " each way"},
		{"one link for both ways", plan.Plan{Schedule: "1f1b", Weights: "sync", MicroBatches: 6}, []int{0}, []int{1}, 100,
			0, true, fmt.Sprintf(link, 60)},
		// Each of the two devices of stage 1 gets half of each of 12 micro-batches.
		{"slices", plan.Plan{Schedule: "1f1b", Weights: "sync", MicroBatches: 12, Replication: "split"}, []int{0},
			[]int{1, 2}, 100, 0, false, fmt.Sprintf(link, 30) + " each way"},
		// Micro-batches 0 to 5 are on devices 0, 1, 0, 1, 0, 1 of stage 0, and on 2, 3, 4, 2, 3, 4 of stage 1. So of
		// six micro-batches in a row, each pair of devices has one.
		{"in turn", plan.Plan{Schedule: "1f1b", Weights: "sync", MicroBatches: 24}, []int{0, 1}, []int{2, 3, 4}, 100, 0,
			false, fmt.Sprintf(link, 20) + " each way"},
		// Each of the six pairs has every sixth minibatch, and a step is one minibatch.
		{"minibatches in turn", plan.Plan{Schedule: "1f1b-rr", Weights: "stash", MicroBatches: 1}, []int{0, 1},
			[]int{2, 3, 4}, 6000, 0, false, fmt.Sprintf(link, 50) + " each way"},
	} {
		t.Run(of.name, func(t *testing.T) {
			pl, c := of.plan, cluster.Local("cpu", 5, 0, 0, 0, 100, 100)
			c.Levels[0].FullDuplex = !of.halfDuplex
			pl.Replication = cmp.Or(pl.Replication, "round_robin")
			pl.Stages = []plan.Stage{{Devices: of.first}, {FirstLayer: 1, LastLayer: 1, Devices: of.second}}
			devices := len(of.first) + len(of.second)
			pl.Predicted = &plan.Predicted{StepS: 20, BusyS: slices.Repeat([]float64{2}, devices)}
			costs := sim.Costs{Transfer: c.Transfer, Links: c.Links}
			for s, on := range [][]int{of.first, of.second} {
				stage := make([]sim.StageCost, len(on))
				for r := range stage {
					if s == 0 {
						stage[r].ActivationBytes, stage[r].AllReduceS = of.bytes, of.sumS
					} else if stage[r].GradientBytes = of.bytes; pl.Replication == "split" {
						stage[r].GradientBytes /= int64(len(on))
					}
				}
				costs.Stages = append(costs.Stages, stage)
			}
			if got := bottleneck(c, &pl, &costs); got != of.want {
				t.Errorf("%s; want %s", got, of.want)
			}
		})
	}
}
