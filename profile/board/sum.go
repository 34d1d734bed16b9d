package board

import "github.com/millrace-ml/millrace/cluster"

// Sum holds the times of several layers of a stage for one micro-batch. Sums can be added and subtracted.
type Sum struct {
	ForwardS, BackwardS float64 // of a forward alone and of a backward alone
	Cost
	WeightBytes float64
}

// Plus returns s + times * o. The factor times is 1, -1, or the part of a layer that a stage has.
func (s Sum) Plus(o Sum, times float64) Sum {
	s.ForwardS += times * o.ForwardS
	s.BackwardS += times * o.BackwardS
	s.PairedS += times * o.PairedS
	s.ForwardMemoryS += times * o.ForwardMemoryS
	s.BackwardMemoryS += times * o.BackwardMemoryS
	s.WeightBytes += times * o.WeightBytes
	s.OnChip = s.OnChip || o.OnChip
	return s
}

// Times returns a stage's times on a device, in seconds. They are the times of a forward alone, of a backward alone,
// and of both at once for different micro-batches. Weights that do not fit on the chip are transferred from and to
// memory, once in the forward and twice in the backward.
func (s Sum) Times(d cluster.DeviceType) (forwardS, backwardS, pairedS float64) {
	spill := 0.0
	if s.OnChip && d.MemoryBandwidthBytesPerSecond > 0 {
		spill = max(0, s.WeightBytes-float64(d.OnChipBytes())) / d.MemoryBandwidthBytesPerSecond
	}
	forwardS = max(s.ForwardS, s.ForwardMemoryS+spill)
	backwardS = max(s.BackwardS, s.BackwardMemoryS+2*spill)
	pairedS = max(s.PairedS, s.ForwardMemoryS+s.BackwardMemoryS+3*spill)
	return forwardS, backwardS, pairedS
}
