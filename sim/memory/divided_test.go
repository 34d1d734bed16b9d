package memory

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// blocks returns a profile of layers, and its costs. Each layer reads the one before it.
func blocks(precision string, states int, layers ...profile.Layer) (*profile.Profile, []profile.Cost) {
	p := &profile.Profile{OptimizerStates: states, Precision: precision}
	costs := []profile.Cost{}
	for l, layer := range layers {
		layer.From, layer.TiedTo = []int{l - 1}, -1
		p.Layers = append(p.Layers, layer)
		costs = append(costs, layer.Costs[0])
	}
	return p, costs
}

// TestBytesOfAParameter checks the bytes of a parameter for each way of sharding n replicas (Rajbhandari et al., ZeRO,
// SC 2020, section 5). With weight, gradient and states, Adam in 16 bits takes 2 + 2 + 12. zero1 leaves 4 + 12/n, zero2
// 2 + 14/n and zero3 16/n. In 32 bits Adam takes 4 + 4 + 8, and in bfloat16, with gradients of 32 bits, 2 + 4 + 12.
func TestBytesOfAParameter(t *testing.T) {
	const elements = 960
	for precision, of := range map[string]struct{ weight, gradient, states int64 }{
		"f16": {2, 2, 12}, "": {4, 4, 8}, "bf16": {2, 4, 12}} {
		p, costs := blocks(precision, 2, profile.Layer{Name: "head", ParameterBytes: elements * of.weight,
			Costs: []profile.Cost{{}}})
		for _, n := range []int64{1, 2, 4, 64} {
			st := plan.Stage{Devices: slices.Repeat([]int{0}, int(n))}
			for shard, want := range map[plan.Shard]int64{
				plan.ShardNothing: elements * (of.weight + of.gradient + of.states),
				plan.ZeRO1:        elements*(of.weight+of.gradient) + elements*of.states/n,
				plan.ZeRO2:        elements*of.weight + elements*(of.gradient+of.states)/n,
				plan.ZeRO3:        elements * (of.weight + of.gradient + of.states) / n,
			} {
				held := Of(p, costs, st, shard)
				if got := held.FixedBytes + held.ParameterBytes; got != want {
					t.Errorf("%s, %v of %d: %d bytes, want %d", precision, shard, n, got, want)
				}
				sums := SumsOf(p, costs)
				if got := sums.Held(0, 1, 0, plan.KeepAll, Replicas{int(n), shard}); got != want {
					t.Errorf("%s, %v of %d: sums say %d bytes, want %d", precision, shard, n, got, want)
				}
			}
		}
	}
}

// TestWholeForAMoment checks by hand the weights and gradients that are whole for a moment. The layers are an embedding
// of 100 bytes, two blocks of 40 + 20 and 32 + 8, and a head of 200. Each embedding, block and head is a unit. Two
// neighbouring units are whole at once. The largest such pair is block 1 and the head: 40 + 200. The largest gradient
// is that of the head.
func TestWholeForAMoment(t *testing.T) {
	layer := func(name string, bytes int64) profile.Layer {
		return profile.Layer{Name: name, ParameterBytes: bytes, Costs: []profile.Cost{{}}}
	}
	p, costs := blocks("", 1, layer("embed", 100), layer("block0.a", 40), layer("block0.b", 20), layer("block1.a", 32),
		layer("block1.b", 8), layer("head", 200))
	var got []string
	for _, u := range Units(p, plan.Stage{LastLayer: 5}) {
		got = append(got, fmt.Sprint(u.From, u.To, u.WeightBytes, u.GradientBytes))
	}
	if want := []string{"0 1 100 100", "1 3 60 60", "3 5 40 40", "5 6 200 200"}; !slices.Equal(got, want) {
		t.Errorf("units %v, want %v", got, want)
	}
	for shard, want := range map[plan.Shard][2]int64{plan.ZeRO1: {0, 400}, plan.ZeRO2: {0, 100 + 200},
		plan.ZeRO3: {240, 100 + 440}} {
		held := Of(p, costs, plan.Stage{LastLayer: 5, Devices: []int{0, 1, 2, 3}}, shard)
		if held.ForwardPeak != want[0] || held.FirstBackwardPeak != want[1] {
			t.Errorf("%v: a forward holds %d for a moment, the first backward %d; want %v", shard, held.ForwardPeak,
				held.FirstBackwardPeak, want)
		}
	}
}

// TestBlocksThatAreComputedAgain checks recomputed blocks by hand. The two numbers of each layer are its output and its
// saved bytes. A micro-batch in flight keeps all of the embedding, the norm and the head, but of the blocks only their
// outputs, 11 and 13. The backward computes block 1 again with all its saved bytes. Meanwhile the block's output 13 is
// freed and its input is held.
func TestBlocksThatAreComputedAgain(t *testing.T) {
	layer := func(name string, output, saved int64) profile.Layer {
		return profile.Layer{Name: name, Costs: []profile.Cost{{OutputBytes: output, SavedBytes: saved,
			ForwardPeakBytes: saved}}}
	}
	p, costs := blocks("", 0, layer("embed", 3, 4), layer("block0.a", 5, 100), layer("block0.b", 11, 200),
		layer("block1.a", 6, 300), layer("block1.b", 13, 400), layer("norm", 17, 19), layer("head", 0, 23))
	st := plan.Stage{LastLayer: 6, Recompute: plan.Blocks, Devices: []int{0}}
	held := Of(p, costs, st, plan.ShardNothing)
	if want := int64(4 + 11 + 13 + 19 + 23); held.SavedBytes != want {
		t.Errorf("a micro-batch in flight keeps %d bytes, want %d", held.SavedBytes, want)
	}
	// Forward, at block1.b: 4 + 11 are kept, block1.a's output is 6, and block1.b makes 400.
	if want := int64(4 + 11 + 6 + 400); held.ForwardPeak != want {
		t.Errorf("a forward holds %d, want %d", held.ForwardPeak, want)
	}
	// Backward: the 23 + 19 of head and norm are freed, and the gradient of block1.b, 13, is there. Block 1's output 13
	// is freed and block 1 is computed again, 300 + 400.
	if want := int64(-23 - 19 + 13 - 13 + 300 + 400); held.BackwardPeak != want {
		t.Errorf("a backward holds %d, want %d", held.BackwardPeak, want)
	}
	sums := SumsOf(p, costs)
	if got, want := sums.Held(0, 7, 2, plan.Blocks, Replicas{}), int64(2*(4+11+13+19+23)+700); got != want {
		t.Errorf("sums say %d for two in flight, want %d", got, want)
	}
	// A stage that begins and ends inside blocks.
	st.FirstLayer, st.LastLayer = 2, 3
	if held := Of(p, costs, st, plan.ShardNothing); held.SavedBytes != 11 {
		t.Errorf("of halves of blocks %d bytes are kept, want the 11 that one reads of the other", held.SavedBytes)
	}
}
