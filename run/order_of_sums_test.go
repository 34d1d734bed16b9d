package run

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
	"github.com/millrace-ml/millrace/trace"
)

// addedUp returns the order in which a stage of a one-step Program sums its micro-batches' gradients. `halves` is the
// order in layers whose backwards are split, and `whole` is the order in other layers.
func addedUp(p *schedule.Program, stage int) (halves, whole []int32) {
	p.Walk(p.Placement[0][stage][0], func(in schedule.Instruction) bool {
		if int(in.Stage) != stage {
			return true
		}
		if in.Kind == schedule.B || in.Kind == schedule.W {
			halves = append(halves, in.Micro)
		}
		if in.Kind == schedule.B || in.Kind == schedule.I {
			whole = append(whole, in.Micro)
		}
		return true
	})
	return halves, whole
}

// another reports whether adding floats in this order gives another sum than in ascending order. The first two floats
// may be exchanged, because a + b has the same bits as b + a.
func another(order []int32) bool {
	o := slices.Clone(order)
	if len(o) > 1 && o[0] > o[1] {
		o[0], o[1] = o[1], o[0]
	}
	return !slices.IsSorted(o)
}

// TestProgramsThatDoNotAscend: a random synchronous Program that is accepted ends with the same bits as one worker. A
// Program that sums gradients in another order than that of the micro-batches is refused before its first step. With
// AnyOrder it runs, and ends with other bits than one worker.
func TestProgramsThatDoNotAscend(t *testing.T) {
	e := testEngine(t)
	accepted, refused := 0, 0
	for seed := uint64(0); accepted < 12 || refused < 12; seed++ {
		if seed > 2000 {
			t.Fatalf("%d accepted and %d refused of %d random programs", accepted, refused, seed)
		}
		g := rand.New(rand.NewPCG(seed, 77))
		p := scheduletest.Random(g.IntN, scheduletest.Options{
			Workers:      3,
			Chunks:       2,
			MicroBatches: 5,
			Minibatches:  1,
			Ascending:    g.IntN(2) == 0,
			Policies:     []schedule.Policy{schedule.Sync},
		})
		m := build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{5, 5, 5, 5}, "classes": 3, "activation": "tanh"})
		if p.Stages > len(m.Layers) {
			continue
		}
		pl := planOf(m, evenCuts(len(m.Layers), p.Stages), 3, p.MicroBatches, "random")
		differs, same := false, true
		for s := range pl.Stages {
			pl.Stages[s].Devices = p.Placement[0][s]
			holds := slices.ContainsFunc(m.Layers[pl.Stages[s].FirstLayer:pl.Stages[s].LastLayer+1], hasParams)
			halves, whole := addedUp(p, s)
			differs = differs || holds && another(halves) && another(whole)
			same = same && !another(halves) && !another(whole)
		}
		ordered := check.OutOfOrder(p, false) == nil
		if ordered && accepted >= 12 || !ordered && (refused >= 12 || !differs) {
			continue
		}
		lowered, err := lower.Lower(p, lower.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := basic(t, e, m, pl, 3, 1)
		c.Train.Rate.Base = 1e3 // large enough that a gradient's last bit shows in its weight
		c.Next = func(trace.Timeline, int) (*schedule.Program, error) { return lowered, nil }
		want := reference(t, c)
		if ordered {
			accepted++
			if !same {
				t.Fatalf("seed %d: it is accepted, and sums are not in order\n%s", seed, p.Text())
			}
			if err := sameWeights(want, train(t, c).Weights); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, p.Text())
			}
			continue
		}
		refused++
		res, err := Train(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), "must come before") || res != nil && res.Steps > 0 {
			t.Fatalf("seed %d: it is not refused: %v\n%s", seed, err, p.Text())
		}
		c.Train.AnyOrder = true
		if sameWeights(want, train(t, c).Weights) == nil {
			t.Fatalf("seed %d: it is refused, and leaves the bits of one worker\n%s", seed, p.Text())
		}
	}
}

// TestForwardsOfBatchNormAscend: in a model with a batch norm, forwards in another order leave other statistics, so the
// Program is refused. For a model without a batch norm the Program is accepted, and ends with the same bits as one
// worker.
func TestForwardsOfBatchNormAscend(t *testing.T) {
	const micros = 3
	p := &schedule.Program{
		Name: "forwards", Stages: 2, Workers: 2, Placement: [][][]int{{{0}, {1}}},
		MicroBatches: micros, Period: 1, Repeat: 1,
		Weights: schedule.Sync, Replication: schedule.RoundRobin,
		Recompute: make([]plan.Recompute, 2), Body: make(schedule.Part, 2),
	}
	for w, text := range []string{"0F2 0F0 0F1 0B0 0B1 0B2", "1F2 1F0 1F1 1B0 1B1 1B2"} {
		for word := range strings.FieldsSeq(text) {
			in, err := schedule.ParseInstruction(word)
			if err != nil {
				t.Fatal(err)
			}
			p.Body[w] = append(p.Body[w], in)
		}
	}
	lowered, err := lower.Lower(p, lower.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := torchEngine(t)
	for _, norm := range []bool{false, true} {
		m := build(t, "convnet", map[string]any{
			"image":      []int{1, 8, 8},
			"widths":     []int{2, 4},
			"dense":      []int{8},
			"batch_norm": norm,
			"classes":    3,
		})
		c := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), 2), 2, micros, "forwards"), 3, 1)
		c.Next = func(trace.Timeline, int) (*schedule.Program, error) { return lowered, nil }
		want := reference(t, c)
		if !norm {
			if err := sameWeights(want, train(t, c).Weights); err != nil {
				t.Error(err)
			}
			continue
		}
		_, err := Train(t.Context(), c)
		if err == nil ||
			!strings.Contains(err.Error(), "the statistics of a batch norm take it in behind that of 0F2") {
			t.Errorf("it is not refused: %v", err)
		}
		c.Train.AnyOrder = true
		if sameWeights(want, train(t, c).Weights) == nil {
			t.Error("forwards in another order left the same statistics")
		}
	}
}

func hasParams(l model.Layer) bool { return len(l.Params) > 0 }
