package run

import (
	"math"
	"sort"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/packing"
)

// crosses rounds those rows of a micro-batch's tensors that stage `to` computes on another worker than stage `from`. It
// rounds number by number as package packing's comment says, without using its code.
func (w *twin) crosses(all whole, id, from, to int) {
	f := w.c.Plan.Boundary
	if !f.Packs() {
		return
	}
	for _, x := range all {
		if !x.dtype.IsFloat() {
			continue
		}
		rows := int(x.shape[0])
		size := len(x.data) / rows
		for r := range rows {
			if w.worker(id, from, r) == w.worker(id, to, r) {
				continue
			}
			row := x.data[r*size : (r+1)*size]
			if x.dtype == engine.Float32 {
				numbers := engine.Numbers[float32](row)
				for i, y := range rounded(f, wide(numbers)) {
					numbers[i] = float32(y)
				}
				continue
			}
			copy(engine.Numbers[float64](row), rounded(f, engine.Numbers[float64](row)))
		}
	}
}

// worker returns the worker that computes a row of a micro-batch on a stage.
func (w *twin) worker(id, stage, row int) int {
	which, of := w.takes(stage, id)
	for k, r := range which {
		if of[k].from <= row && row < of[k].to {
			return w.c.Plan.Stages[stage].Devices[r]
		}
	}
	panic("a row that nobody computes")
}

func wide(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// rounded returns a row of finite numbers as it arrives after a transfer in format f.
func rounded(f packing.Format, row []float64) []float64 {
	out := make([]float64, len(row))
	largest := 0.0
	for _, x := range row {
		largest = math.Max(largest, math.Abs(x))
	}
	scale := float64(float32(largest / 127))
	for i, x := range row {
		switch f {
		case packing.F16:
			out[i] = nearest(halves, x)
		case packing.BF16:
			out[i] = nearest(upperHalves, x)
		case packing.I8:
			if scale > 0 {
				q := x * (1 / scale)
				whole := math.Floor(q)
				if off := q - whole; off > 0.5 || off == 0.5 && math.Mod(whole, 2) != 0 {
					whole++
				}
				out[i] = math.Max(-127, math.Min(127, whole)) * scale
			}
		}
	}
	return out
}

// halves lists the finite numbers of the 16-bit format with 5 exponent bits, from 0 upwards. upperHalves lists the
// finite numbers of the format with 8 exponent bits. Both lists are ascending. A number at an even index has an even
// last bit.
var halves, upperHalves = listed(5, 15), listed(8, 127)

func listed(exponents, bias int) (all []float64) {
	steps := 1 << (15 - exponents)
	for e := range 1<<exponents - 1 {
		for m := range steps {
			if e == 0 {
				all = append(all, float64(m)*math.Pow(2, float64(1-bias))/float64(steps))
			} else {
				all = append(all, (1+float64(m)/float64(steps))*math.Pow(2, float64(e-bias)))
			}
		}
	}
	return all
}

func nearest(list []float64, x float64) float64 {
	a := math.Abs(x)
	at := sort.SearchFloat64s(list, a)
	if at == len(list) {
		at--
	} else if at > 0 {
		if below, above := a-list[at-1], list[at]-a; below < above || below == above && at%2 == 1 {
			at--
		}
	}
	return math.Copysign(list[at], x)
}
