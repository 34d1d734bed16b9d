// Package board computes the time of a layer on an FPGA board like those of FPDeep.
//
// In: a layer's description, and a board's slices, clock and memories. Out: a Cost for the analytic profile, and
// Sums of costs, which give the time of a stage. Refused: unknown settings.
//
// BaPipe simulates the profile of a board "according to DNN configurations and hardware constraints include
// computing power and memory bandwidth", on FPDeep's architecture (§3.1). The paper does not print that simulator.
// The rules below are derived from these sentences:
//
//	engines   A board computes FP and the two halves of BP (errors, gradients of weights) in separate engines. They
//	          share its DSP slices in proportion to their operations; under FBP all three work at once (BaPipe
//	          §3.2.1; FPDeep, arXiv:1901.01007). If only one of them has work, it has all slices,
//	          because F and B of Table I are the times of F and B alone.
//	slices    "The minimum size of micro-batch to fully utilize DSP resources of FPGA by FP only or parallel FP/BP
//	          is different" (§3.2.1). At one position of a layer's output each weight is multiplied once per
//	          sample. These products do not wait for each other, and no more slices can work than there are
//	          products. With p products per sample and position, s slices need ceil(b p / s) cycles for b
//	          samples. A third of the slices is fully used with a third of the samples, so FBP fills the board
//	          with a third of the samples that FP alone needs.
//	features  Layers pass rows on as they come, and features wait on the chip for their backward: FPDeep reduces
//	          storage "to the point where only on-chip memory is used for the convolution layers" (its abstract).
//	weights   In memory (DDR), or on the chip as far as they fit: "weights of each stage are stored in on-chip
//	          memory as much as possible" (§4.3). For each micro-batch, weights in memory are read once forward
//	          and once for the errors, and their gradients are written once. Memory works in parallel with the
//	          slices of a whole stage: the next layer's weights are read while a layer computes.
//
// In equations, for a layer of w weights whose pass needs W products per sample, a micro-batch of b samples, a clock
// f and s slices that each multiply and add once per cycle:
//
//	pass(s)  = W/p ceil(b p / s) / f
//	F        = pass_F(D)                     all D slices
//	B        = max(pass_E(s_E), pass_G(s_G))       s_E + s_G = D
//	FBP      = max(pass_F(s_F), pass_E(s_E), pass_G(s_G))   s_F + s_E + s_G = D, each s in proportion to its W
//	memory   = 4 w / DDR forward, 8 w / DDR backward        4 bytes per weight, DDR in bytes per second
//	stage    = max(sum of passes, sum of memory)
//
// Assumptions that neither paper states are Settings, so that they can be switched: p, and where features wait.
package board

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
)

// Settings are assumptions about a board.
type Settings struct {
	// Lanes says which products of a layer can be computed independently; "" means Weights.
	Lanes string
	// Features says where features wait for their backward: Chip, or Memory, where they are written once and read once.
	// "" means Chip.
	Features string
}

// The values of Settings.
const (
	Weights  = "weights"  // all weights at a position: channels in x channels out x kernel
	Channels = "channels" // channels in x channels out; the kernel is processed in sequence
	All      = "all"      // the products of all positions too, so that all slices can work
	Chip     = "chip"
	Memory   = "memory"
)

// Check refuses unknown settings.
func (s Settings) Check() error {
	for _, f := range []struct {
		name, value string
		known       []string
	}{{"lanes", s.Lanes, []string{Weights, Channels, All}}, {"features", s.Features, []string{Chip, Memory}}} {
		if f.value != "" && !slices.Contains(f.known, f.value) {
			return fmt.Errorf("board: %s is %q; give %s or %s", f.name, f.value,
				strings.Join(f.known[:len(f.known)-1], ", "), f.known[len(f.known)-1])
		}
	}
	return nil
}

// Cost holds the times of a layer on a board, in seconds for one micro-batch. It leaves out the times of a forward
// alone and of a backward alone.
type Cost struct {
	PairedS float64 `json:"paired_s"` // forward of one micro-batch and backward of another, at once
	// ForwardMemoryS and BackwardMemoryS are the times of memory traffic, which runs in parallel to the stage's
	// computations. They leave out weights that stay on the chip.
	ForwardMemoryS  float64 `json:"forward_memory_s"`
	BackwardMemoryS float64 `json:"backward_memory_s"`
	// OnChip says that a stage's weights stay on the chip as far as they fit.
	OnChip bool `json:"weights_on_chip,omitempty"`
}

// Of returns the times of a layer for a micro-batch of n samples, in seconds. They are the times of a forward alone, of
// a backward alone and, in c, of both at once. If onChip is true, the layer's weights are left out of the memory
// traffic.
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

// WordsRate returns the bytes per second between a board's on-chip memory and its slices: 4 bytes per slice and cycle.
// It limits updates of weights on the chip.
func WordsRate(d cluster.DeviceType) float64 { return 4 * float64(d.FPGA.DSPSlices) * d.FPGA.ClockHz }

// lanes returns how many products of a sample can be computed independently; 0 means no limit.
func (s Settings) lanes(l *model.Layer) float64 {
	if s.Lanes == All {
		return 0
	}
	n := int64(0)
	for _, p := range l.Params {
		if len(p.Shape) < 2 || !p.Learned() { // leaves out biases, and batch norm's scale and shift
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

// engines describes how a board's slices compute a layer.
type engines struct {
	board   *cluster.FPGA
	lanes   float64
	samples float64
}

// takeS returns the time, in seconds, of passes that run side by side. Each argument is the number of a pass's products
// per sample. The result is the time of the longest pass. Each pass gets its share of the slices.
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
