package profile

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/packing"
)

// Packing is how fast a machine writes numbers of 32 bits in a format, and makes them of it again.
type Packing struct {
	Format               packing.Format `json:"format"`
	PackBytesPerSecond   float64        `json:"pack_bytes_per_s"` // of the numbers, not of what stands for them
	UnpackBytesPerSecond float64        `json:"unpack_bytes_per_s"`
}

// PackingIn is what a machine takes for a format, if anybody has measured it.
func (t *Transfer) PackingIn(f packing.Format) (p Packing, known bool) {
	if t == nil {
		return Packing{}, false
	}
	at := slices.IndexFunc(t.Packing, func(p Packing) bool { return p.Format == f })
	if at < 0 {
		return Packing{}, false
	}
	return t.Packing[at], true
}

// checkPacking refuses rates that are none.
func (t *Transfer) checkPacking() error {
	for _, p := range t.Packing {
		if f, err := packing.Named(string(p.Format)); err != nil || !f.Packs() {
			return wrong("transfer: packing: format", fmt.Sprintf("%q", p.Format), "f16, bf16 or i8")
		}
		if !(p.PackBytesPerSecond > 0) || !(p.UnpackBytesPerSecond > 0) {
			return wrong("transfer: packing", fmt.Sprintf("%v and %v bytes a second", p.PackBytesPerSecond,
				p.UnpackBytesPerSecond), "above 0")
		}
	}
	return nil
}

// Packed is the profile where OutputBytes are what crosses a boundary in a format. Nothing else changes; what a stage
// holds of its outputs is in SavedBytes.
func (p *Profile) Packed(f packing.Format) *Profile {
	if !f.Packs() {
		return p
	}
	q := *p
	q.Layers = slices.Clone(p.Layers)
	for i := range q.Layers {
		l := &q.Layers[i]
		l.Costs = slices.Clone(l.Costs)
		for k := range l.Costs {
			l.Costs[k].OutputBytes = l.packed(&l.Costs[k], f)
		}
	}
	return &q
}

// packed is the bytes of a layer's outputs for a micro-batch, in a format.
func (l *Layer) packed(c *Cost, f packing.Format) int64 {
	rows := int64(max(c.MicroBatch, 1))
	if l.FloatOutputs == nil && l.WholeOutputBytes == 0 {
		return rows * f.RowBytes(c.OutputBytes/rows/packing.Whole.ElementBytes())
	}
	n := l.WholeOutputBytes
	for _, elements := range l.FloatOutputs {
		n += f.RowBytes(elements)
	}
	return rows * n
}
