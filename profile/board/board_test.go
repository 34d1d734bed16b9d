package board

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
)

// conv returns a 3 x 3 convolution of 8 channels into 4 on 5 x 5 outputs. A board reads 288 weights of it, and each
// weight multiplies once at each of 25 positions.
func conv() *model.Layer {
	return &model.Layer{Name: "c", Kind: "conv2d",
		Params:       []model.Param{{Name: "weight", Shape: []int{4, 8, 3, 3}}, {Name: "bias", Shape: []int{4}}},
		ForwardFLOPs: 2 * 25 * 288, InputFLOPs: 2 * 25 * 288, WeightFLOPs: 2 * 25 * 288,
		Outputs: []model.Tensor{{Shape: []int{4, 5, 5}}}, SavedBytes: 1000}
}

func of(slices int) cluster.DeviceType {
	return cluster.DeviceType{MemoryBandwidthBytesPerSecond: 1, FPGA: &cluster.FPGA{DSPSlices: slices, ClockHz: 1,
		FLOPsPerSlice: 2, OnChipBytes: 100}}
}

// TestPassesByHand has a clock of 1 Hz, so seconds are cycles. With lanes Weights, a forward of b samples takes
// 25*ceil(b*288/s) cycles on s slices. On 864 slices, a forward that runs alone uses all slices from three samples on.
// If both halves of a backward run at the same time as a forward, each of the three has 288 slices, and uses all of
// them from one sample on.
func TestPassesByHand(t *testing.T) {
	for _, c := range []struct {
		slices, samples           int
		lanes                     string
		forward, backward, paired float64
	}{
		{864, 1, Weights, 25, 25, 25},     // 288 products: on 864 slices forward, 432 backward, 288 paired
		{864, 2, Weights, 25, 50, 50},     // 576 products: on 864 slices forward, 432 backward, 288 paired
		{864, 3, Weights, 25, 50, 75},     // 864 products: on 864 slices forward, 432 backward, 288 paired
		{864, 6, Weights, 50, 100, 150},   // all passes use all slices
		{864, 1, Channels, 225, 225, 225}, // 32 products use 32 of 864 slices in each of 25 x 9 cycles
		{864, 1, All, 25. / 3, 50. / 3, 25},
		{300, 1, Weights, 25, 50, 75}, // 288 products: on 300 slices forward, 150 backward, 100 paired
	} {
		forward, backward, cost := Settings{Lanes: c.lanes}.Of(conv(), of(c.slices), int64(c.samples), false)
		for _, x := range []struct {
			what      string
			got, want float64
		}{{"forward", forward, c.forward}, {"backward", backward, c.backward}, {"pair", cost.PairedS, c.paired}} {
			if math.Abs(x.got-x.want) > 1e-9 {
				t.Errorf("%d slices, %d samples, lanes %s: %s takes %v, want %v", c.slices, c.samples, c.lanes, x.what,
					x.got, x.want)
			}
		}
	}
}

// TestSmallerMicroBatchesFillFBP finds the smallest micro-batch that reaches a board's peak. By hand, a forward alone
// needs 3 samples: 3*288 = 864 slices. A backward has two engines of 432 slices, and needs 3 samples too: 2*432 =
// 3*288. Both at once need 1 sample (BaPipe §3.2.1).
func TestSmallerMicroBatchesFillFBP(t *testing.T) {
	least := func(full func(forward, backward, paired float64, b int64) bool) int64 {
		for b := int64(1); b < 100; b++ {
			forward, backward, cost := Settings{}.Of(conv(), of(864), b, false)
			if full(forward, backward, cost.PairedS, b) {
				return b
			}
		}
		return 0
	}
	peak := 25. * 288 / 864 // seconds that one pass of a sample takes at the peak
	alone := least(func(f, _, _ float64, b int64) bool { return f <= float64(b)*peak*(1+1e-9) })
	back := least(func(_, g, _ float64, b int64) bool { return g <= 2*float64(b)*peak*(1+1e-9) })
	pair := least(func(_, _, p float64, b int64) bool { return p <= 3*float64(b)*peak*(1+1e-9) })
	if alone != 3 || back != 3 || pair != 1 {
		t.Errorf("full from %d samples forward, %d back, %d both at once; want 3, 3, 1", alone, back, pair)
	}
}

// TestMemoryBesideSlices has two layers on a chip of 100 bytes, and a memory of 1 B/s. Each layer has 288 weights and 4
// biases: 1152 + 16 bytes. With weights in memory, reading them takes 2*1168 = 2336 s forward and twice that backward,
// which is longer than the computing. With weights on the chip, only those beyond its 100 bytes are read. Features in
// memory take 2000 s more in each direction.
func TestMemoryBesideSlices(t *testing.T) {
	for _, c := range []struct {
		onChip                    bool
		features                  string
		forward, backward, paired float64
	}{
		{false, "", 2336, 4672, 7008},
		{true, "", 2236, 4472, 6708},
		{false, Memory, 4336, 6672, 11008},
		{true, Memory, 4236, 6472, 10708},
	} {
		var sum Sum
		for range 2 {
			forward, backward, cost := Settings{Features: c.features}.Of(conv(), of(864), 1, c.onChip)
			sum = sum.Plus(Sum{ForwardS: forward, BackwardS: backward, Cost: cost, WeightBytes: 1168}, 1)
		}
		forward, backward, paired := sum.Times(of(864))
		if forward != c.forward || backward != c.backward || paired != c.paired {
			t.Errorf("%+v: %v, %v, %v", c, forward, backward, paired)
		}
	}
	var slow Sum // computing that takes longer than the memory traffic
	slow.ForwardS, slow.BackwardS, slow.PairedS, slow.ForwardMemoryS = 10, 20, 25, 3
	if f, b, p := slow.Times(of(1)); f != 10 || b != 20 || p != 25 {
		t.Errorf("got %v, %v, %v", f, b, p)
	}
}

func TestRefusesSettings(t *testing.T) {
	for s, want := range map[Settings]string{
		{Lanes: "many"}:         `board: lanes is "many"; give weights, channels or all`,
		{Features: "elsewhere"}: `board: features is "elsewhere"; give chip or memory`,
	} {
		if err := s.Check(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v; want %s", s, err, want)
		}
	}
}
