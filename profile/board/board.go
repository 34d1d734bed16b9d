// Package board says what a layer takes on an FPGA board that computes as FPDeep's boards do.
//
// In: a layer's description, a board's slices, clock and memories. Out: a Cost, which the analytic profile keeps,
// and Sums of costs, which say how long a stage takes. Refused: settings that it does not know.
//
// BaPipe simulates the profile of a board "according to DNN configurations and hardware constraints include
// computing power and memory bandwidth", on FPDeep's architecture (§3.1). It does not print that simulator. What
// follows is put together from these sentences:
//
//	engines   A board computes FP, and the two halves of BP (errors, gradients of weights), in engines of their
//	          own, which share its DSP slices in proportion to their operations; all three work at once under FBP
//	          (BaPipe §3.2.1; FPDeep, arXiv:1901.01007). Where only one of them has work it has all slices, or
//	          Table I's F and B alone would not be F and B.
//	slices    "The minimum size of micro-batch to fully utilize DSP resources of FPGA by FP only or parallel FP/BP
//	          is different" (§3.2.1). At one position of a layer's output each weight is multiplied once a sample:
//	          so many products do not wait for each other, and no more slices can work. Of p products a sample and
//	          position, s slices need ceil(b p / s) cycles for b samples. A third of the slices is full three
//	          times as early: FBP needs a third of the samples.
//	features  Layers hand rows on as they come, and features wait for their backward on the chip: FPDeep reduces
//	          storage "to the point where only on-chip memory is used for the convolution layers" (its abstract).
//	weights   In memory (DDR), or on the chip as far as they fit: "weights of each stage are stored in on-chip
//	          memory as much as possible" (§4.3). What is not on the chip is read once forward and once for the
//	          errors, and its gradients are written once, for each micro-batch. Memory works beside the slices of
//	          a whole stage: the next layer's weights come while a layer computes.
//
// In equations, for a layer of w weights whose pass needs W products a sample, a micro-batch of b samples, a
// clock f and s slices that each multiply and add once a cycle:
//
//	pass(s)  = W/p ceil(b p / s) / f
//	F        = pass_F(D)                     all D slices
//	B        = max(pass_E(s_E), pass_G(s_G))       s_E + s_G = D
//	FBP      = max(pass_F(s_F), pass_E(s_E), pass_G(s_G))   s_F + s_E + s_G = D, each s in proportion to its W
//	memory   = w bytes / DDR forward, 2 w bytes / DDR backward
//	stage    = max(sum of passes, sum of memory)
//
// What is assumed and not said by either paper is a Setting, so that it can be switched: p, and where features wait.
package board

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
)

// Settings are assumptions about a board.
type Settings struct {
	// Lanes is which products of a layer do not wait for each other; "" is Weights.
	Lanes string
	// Features is where they wait for their backward: Chip, or Memory, through which they pass twice; "" is Chip.
	Features string
}

// What Settings can say.
const (
	Weights  = "weights"  // those of all weights at a position: channels in x channels out x kernel
	Channels = "channels" // channels in x channels out; the kernel is gone through
	All      = "all"      // those of all positions too: as many as there are slices
	Chip     = "chip"
	Memory   = "memory"
)

// Check refuses settings that are not known.
func (s Settings) Check() error {
	for _, f := range []struct {
		name, value string
		known       []string
	}{{"lanes", s.Lanes, []string{Weights, Channels, All}}, {"features", s.Features, []string{Chip, Memory}}} {
		if f.value != "" && !slices.Contains(f.known, f.value) {
			return fmt.Errorf("board: %s is %q; it is one of %v", f.name, f.value, f.known)
		}
	}
	return nil
}

// Cost is what a layer takes of a micro-batch on a board, in seconds.
type Cost struct {
	PairedS float64 `json:"paired_s"` // forward of one micro-batch and backward of another, at once
	// ForwardMemoryS and BackwardMemoryS are how long what passes through memory takes, beside whatever the
	// stage computes. Weights that stay on the chip are none of it.
	ForwardMemoryS  float64 `json:"forward_memory_s"`
	BackwardMemoryS float64 `json:"backward_memory_s"`
	// OnChip says that weights stay on the chip as far as a stage's fit there.
	OnChip bool `json:"weights_on_chip,omitempty"`
}

// Of is a layer's passes over a micro-batch of n samples, in seconds: forward and backward alone, and beside each
// other. onChip leaves its weights out of what passes through memory.
func (s Settings) Of(l *model.Layer, d cluster.DeviceType, n int64, onChip bool) (forwardS, backwardS float64, c Cost) {
	e := engines{board: d.FPGA, lanes: s.lanes(l), samples: float64(n)}
	F, E, G := float64(l.ForwardFLOPs)/2, float64(l.InputFLOPs)/2, float64(l.WeightFLOPs)/2
	forwardS, backwardS, c.PairedS = e.takeS(F), e.takeS(E, G), e.takeS(F, E, G)
	memory := d.MemoryBandwidthBytesPerSecond
	c.OnChip = onChip
	if w := float64(4 * l.ParameterElements()); !onChip && l.Kind != "embedding" {
		c.ForwardMemoryS, c.BackwardMemoryS = w/memory, 2*w/memory
	}
	if s.Features == Memory {
		saved := float64(n*max(l.SavedBytes, l.OutputBytes())) / memory
		c.ForwardMemoryS += saved
		c.BackwardMemoryS += saved
	}
	return forwardS, backwardS, c
}

// WordsRate is how many bytes a second pass between a board's chip memory and its slices: a number of 4 bytes for each
// slice in each cycle, as updates of weights on the chip need.
func WordsRate(d cluster.DeviceType) float64 { return 4 * float64(d.FPGA.DSPSlices) * d.FPGA.ClockHz }

// lanes is the products of a sample that do not wait for each other; 0 is no bound.
func (s Settings) lanes(l *model.Layer) float64 {
	if s.Lanes == All {
		return 0
	}
	n := int64(0)
	for _, p := range l.Params {
		if len(p.Shape) < 2 || !p.Learned() { // biases and batch norm's add and scale
			continue
		}
		each := model.Tensor{Shape: p.Shape}.Elements()
		if s.Lanes == Channels && len(p.Shape) > 2 {
			each = int64(p.Shape[0]) * int64(p.Shape[1])
		}
		n += each
	}
	return float64(n)
}

// engines are a board's slices at work on a layer.
type engines struct {
	board   *cluster.FPGA
	lanes   float64
	samples float64
}

// takeS is how long passes of so many products a sample take side by side, seconds: the longest of them, each on its
// share of the slices.
func (e engines) takeS(products ...float64) float64 {
	all, longest := 0.0, 0.0
	for _, w := range products {
		all += w
	}
	for _, w := range products {
		if w == 0 {
			continue
		}
		slices := float64(e.board.DSPSlices) * e.board.FLOPsPerSlice / 2 * w / all
		cycles := e.samples * w / slices
		if e.lanes > 0 {
			cycles = w / e.lanes * math.Ceil(e.samples*e.lanes/slices*(1-1e-12))
		}
		longest = max(longest, cycles/e.board.ClockHz)
	}
	return longest
}
