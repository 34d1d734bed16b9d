package profile

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/packing"
)

// Packing holds the speeds at which a machine converts 32-bit numbers to a format and back.
type Packing struct {
	Format               packing.Format `json:"format"`
	PackBytesPerSecond   float64        `json:"pack_bytes_per_s"` // bytes of the 32-bit numbers, not of the packed ones
	UnpackBytesPerSecond float64        `json:"unpack_bytes_per_s"`
}

// PackingIn returns a machine's rates for a format. The result `known` is false if the rates were not measured.
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

// checkPacking refuses formats that pack nothing and rates that are not above 0.
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

// Packed returns the profile in which each OutputBytes is the packed size of the outputs, as they cross a boundary.
// Nothing else changes: a stage holds its outputs unpacked, and SavedBytes counts the unpacked bytes.
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

// packed returns the bytes of a layer's outputs for a micro-batch, in a format.
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

// Selective returns the profile in which backwards recompute attention scores and forwards do not save them. While a
// layer's backward runs, only that layer's scores exist (Korthikanti et al., Reducing Activation Recomputation in Large
// Transformer Models, 2022, section 5).
//
// Refused: profiles without the costs of scores, such as measured ones.
func (p *Profile) Selective() (*Profile, error) {
	known := false
	q := *p
	q.Layers = slices.Clone(p.Layers)
	for i := range q.Layers {
		l := &q.Layers[i]
		l.Costs = slices.Clone(l.Costs)
		for k, c := range l.Costs {
			if c.Scores == (Scores{}) {
				continue
			}
			known = true
			c = c.owned()
			c.BackwardS += c.Scores.AgainS
			if c.BackwardInputS != nil {
				*c.BackwardInputS += c.Scores.AgainS
			}
			if c.AgainS != nil {
				*c.AgainS += c.Scores.AgainS
			}
			c.SavedBytes = max(c.OutputBytes, c.SavedBytes-c.Scores.Bytes)
			c.BackwardPeakBytes, c.WorkspaceBytes = c.BackwardPeakBytes+c.Scores.Bytes, c.WorkspaceBytes+c.Scores.Bytes
			c.Scores = Scores{}
			l.Costs[k] = c
		}
	}
	if !known {
		return nil, fmt.Errorf("profile: recompute selective computes scores of attention again, and no layer of the "+
			"profile of %s says what they take: costs that are computed from kernels do, of transformers on devices of "+
			"--cluster that have them", p.Model)
	}
	return &q, nil
}
