package dapple

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// need returns the least memory of a device, in bytes, with which the stage's depth is at least 1. The stage has
// layers from..to-1 on the given replicas, under the recompute setting.
func (d *costs) need(from, to, replicas int) int64 {
	r := int64(replicas)
	slice := func(bytes int64) int64 { return (bytes + r - 1) / r }
	kept, into := d.saved[to]-d.saved[from], d.cut[from]
	base := d.fixed[to] - d.fixed[from] + slice(d.workspace)
	whole, again := base+slice(into+kept), base+slice(kept)+slice(into)
	switch d.recompute {
	case "yes":
		return again
	case "auto":
		return min(whole, again)
	}
	return whole
}

// leastMemory returns the stages of the plan whose fullest device needs the least memory, and that memory in bytes. It
// considers plans of any number of stages with the cuts and numbers of devices that `s` allows. It returns nil if no
// plan has at least two stages. It assumes equal devices, so whether a stage fits depends only on its layers and
// replicas. Let least(c, m) be the least memory for the layers before cut c on m devices. The last of their stages
// begins at an earlier cut c' and has m-m' devices. Then least(c, m) is the minimum, over c' and m', of the larger of
// least(c', m') and that stage's need.
func (s *search) leastMemory() ([]plan.Held, int64) {
	type step struct {
		bytes     int64
		cut, used int // cut and number of used devices after the earlier stages
	}
	n, G := len(s.p.Layers), len(s.typeOf)
	least := make([][]step, len(s.cuts)+1) // by the cut's index plus one, and devices
	for c := range least {
		least[c] = slices.Repeat([]step{{bytes: math.MaxInt64}}, G+1)
	}
	least[0][0].bytes = 0
	starts := append([]int{0}, s.cuts...)
	best := step{bytes: math.MaxInt64}
	for c, from := range starts {
		for used := range G {
			so := least[c][used].bytes
			if so >= best.bytes {
				continue
			}
			if rest := G - used; c > 0 && rest <= s.mb {
				if v := max(so, s.need(from, n, rest)); v < best.bytes {
					best = step{v, c, used}
				}
			}
			for _, m := range s.steps {
				if used+m >= G || m > s.mb {
					break
				}
				for next := c + 1; next < len(starts); next++ {
					v := max(so, s.need(from, starts[next], m))
					if v >= best.bytes {
						break // more layers need even more memory
					}
					if at := &least[next][used+m]; v < at.bytes {
						*at = step{v, c, used}
					}
				}
			}
		}
	}
	if best.bytes == math.MaxInt64 {
		return nil, 0
	}
	var stages []plan.Held
	for to, end, at := n, G, best; ; {
		from := starts[at.cut]
		h := plan.Held{First: s.p.Layers[from].Name, Last: s.p.Layers[to-1].Name, Bytes: s.need(from, to, end-at.used)}
		for d := at.used; d < end; d++ {
			h.Devices = append(h.Devices, d)
		}
		stages = append(stages, h)
		if at.cut == 0 {
			break
		}
		to, end, at = from, at.used, least[at.cut][at.used]
	}
	slices.Reverse(stages)
	return stages, best.bytes
}

// dataNeed returns the least memory per device with which data parallelism fits.
func (d *costs) dataNeed() int64 {
	keeping := *d
	keeping.recompute = "no"
	return keeping.need(0, len(d.p.Layers), 1)
}

// tooBig returns the error for the case that no plan fits. It says by how much the memory is exceeded, and where.
func (o options) tooBig(p *profile.Profile, searches []*search) error {
	var least *plan.MemoryError
	consider := func(s *search, bytes int64, stages []plan.Held) {
		if least == nil || bytes < least.SmallestBytes {
			least = plan.Refusal("dapple", "weights, gradients, optimizer, activations and a layer's workspace", bytes,
				s.c.MemoryBytes, stages)
			if n := len(p.Layers); len(s.cuts) < n-1 {
				least.Among = fmt.Sprintf("those cut behind %d of its %d layers", len(s.cuts), n)
				if unit := s.steps[0]; unit > 1 {
					least.Among += fmt.Sprintf(", on multiples of %d devices", unit)
				}
			}
		}
	}
	for _, s := range searches {
		if stages, bytes := s.leastMemory(); stages != nil {
			consider(s, bytes, stages)
		}
		if o.dp != "no" {
			all := plan.Held{First: p.Layers[0].Name, Last: p.Layers[len(p.Layers)-1].Name, Bytes: s.dataNeed()}
			for d := range min(len(s.typeOf), s.M) {
				all.Devices = append(all.Devices, d)
			}
			consider(s, all.Bytes, []plan.Held{all})
		}
	}
	if least == nil || least.Stage < 0 {
		return errors.New("plan: dapple: no plan: micro-batches have fewer samples than a stage would have replicas, " +
			"and data parallelism is left out by dp=no")
	}
	return least
}
