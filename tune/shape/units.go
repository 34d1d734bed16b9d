package shape

import (
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile/kernels"
)

// unit is the smallest piece of a model that is placed: the part before the blocks, one block, or the part after
// them. Times are for a micro-batch, bytes for one device.
type unit struct {
	block                  bool
	cheap, products        float64 // parts of `forward`: memory-bound operators, and matrix products
	forward, input, weight float64
	spent                  kernels.Spent   // kernels, without sums and recompute
	summed                 float64         // the part of `forward` and `input` that is the group's sums
	again                  float64         // the part of `input` that is recompute
	parameters             float64         // elements on each device of a group
	saved, saveds          float64         // bytes kept for the backward: in flight (saved), during recompute (saveds)
	output                 float64         // bytes that the next unit reads, on each device
	boundary               float64         // bytes that each device sends to another stage
	pending                float64         // fraction of `saved` that the second half of the backward needs
	shared                 map[int]float64 // number of parameters that an earlier unit owns, by that unit
}

// alike returns a key that is equal for layers of equal cost: the same kind, settings, parameters and tensors.
func alike(l *model.Layer, tensors map[string][]model.Tensor) string {
	var shapes []any
	for _, from := range l.From {
		for _, in := range tensors[from] {
			shapes = append(shapes, in.Shape)
		}
	}
	for _, out := range l.Outputs {
		shapes = append(shapes, out.Shape)
	}
	for _, p := range l.Params {
		shapes = append(shapes, p.Shape, p.Learned())
	}
	return fmt.Sprint(l.Kind, l.Attr, shapes)
}

// units divides a model into units. The model's blocks must repeat without a break.
func (s Shape) units(m *model.Model, name string, d cluster.DeviceType) ([]unit, error) {
	t, spread := 1.0, 1.0 // t: devices in a group; spread: devices that divide the positions of units' outputs
	if d.Group != nil {
		t = float64(d.Group.Size)
		if d.Group.SequenceParallel {
			spread = t
		}
	}
	e := float64(kernels.ElementBytes(s.Precision))
	o := kernels.Options{Precision: s.Precision, Selective: s.Recompute == "selective"}
	var out []unit
	at := "\x00"
	begun := false                         // whether a block has been seen
	owner := map[string]int{}              // unit that owns each parameter
	tensors := map[string][]model.Tensor{} // by the layer or input that produces them
	for _, in := range m.Inputs {
		tensors[in.Name] = []model.Tensor{in}
	}
	known := map[string]kernels.Cost{}
	for i := range m.Layers {
		l := &m.Layers[i]
		block := plan.BlockOf(l.Name)
		tensors[l.Name] = l.Outputs
		if block != "" && block != at && len(out) > 0 && !out[len(out)-1].block && begun {
			return nil, fmt.Errorf("shape: %s has layer %s between its blocks, %s behind it; shapes are of models that "+
				"repeat a block without a break", m.Name, m.Layers[i-1].Name, block)
		}
		begun = begun || block != ""
		if block != at && (block != "" || at != "" || len(out) == 0) {
			out = append(out, unit{block: block != ""})
		}
		at = block
		key := alike(l, tensors)
		cost, ok := known[key]
		if !ok {
			var err error
			if cost, err = kernels.Of(m, i, s.MicroBatch, name, d, o); err != nil {
				return nil, err
			}
			known[key] = cost
		}
		u := &out[len(out)-1]
		u.add(cost, t)
		for _, p := range l.Params {
			if !p.Learned() {
				continue
			}
			n := float64(model.Tensor{Shape: p.Shape}.Elements()) / t
			u.parameters += n
			owner[l.Name+"."+p.Name] = len(out) - 1
			if p.Tied != "" {
				if u.shared == nil {
					u.shared = map[int]float64{}
				}
				u.shared[owner[p.Tied]] += n
			}
		}
		last := l.Outputs[0]
		u.output = float64(s.MicroBatch) * e * float64(last.Elements()) / spread
		u.boundary = float64(s.MicroBatch) * e * float64(last.Elements()) / t
	}
	if !begun {
		return nil, fmt.Errorf("shape: %s has no blocks, layers named like block1.attention; shapes are of models that "+
			"repeat one", m.Name)
	}
	blocks := 0
	for k := range out {
		u := &out[k]
		if s.AsyncTensor {
			u.hideSums(d.Kernels.Overlap)
		}
		u.saveds = u.saved
		u.pending = min(1, u.pending/u.saved)
		if u.block {
			blocks++
			u.recompute(s.Recompute, blocks)
		}
	}
	return out, nil
}

// add adds a layer's cost on one of the devices of a tensor-parallel group.
func (u *unit) add(cost kernels.Cost, devices float64) {
	u.forward += cost.ForwardS
	u.input, u.weight = u.input+cost.InputS, u.weight+cost.WeightS
	u.cheap, u.products = u.cheap+cost.CheapS, u.products+cost.ProductsS
	u.spent = u.spent.Plus(cost.Spent, 1)
	u.summed, u.again = u.summed+cost.SummedS, u.again+cost.CoreS
	u.saved += float64(cost.SavedBytes) / devices
	u.pending += float64(cost.PendingBytes) / devices
}

// hideSums hides a part of the group's sums behind computations, half of it in the forward and half in the backward.
func (u *unit) hideSums(overlap float64) {
	hidden := overlap * min(u.summed, u.forward+u.input+u.weight-u.summed)
	u.summed -= hidden
	u.forward, u.input = u.forward-hidden/2, u.input-hidden/2
}

// recompute makes a block keep less and recompute the rest in the backward. `number` is the block's number, counted
// from 1.
func (u *unit) recompute(how string, number int) {
	switch {
	case how == "full" || how == "alternate" && number%2 == 0:
		u.again = u.forward
		u.input += u.forward
		u.saved = u.output
	case how == "operators":
		u.again = u.cheap + u.products/2
		u.input += u.again
		u.saved /= 2
	}
}

// place returns the first unit of each virtual stage, and the end of the last one.
func (s Shape) place(units []unit) ([]int, error) {
	first, blocks := 0, 0
	for first < len(units) && !units[first].block {
		first++
	}
	for _, u := range units {
		if u.block {
			blocks++
		}
	}
	n := s.Stages * s.Chunks
	each := s.Blocks
	switch {
	case each != nil:
	case blocks%n == 0:
		for range n {
			each = append(each, blocks/n)
		}
	case n > 1 && (blocks+2)%n == 0:
		for range n {
			each = append(each, (blocks+2)/n)
		}
		each[0], each[n-1] = each[0]-1, each[n-1]-1
	case blocks >= n: // the remainder goes to the middle stages
		for k := range n {
			more := 0
			if off := blocks % n; k >= (n-off)/2 && k < (n-off)/2+off {
				more = 1
			}
			each = append(each, blocks/n+more)
		}
	default:
		return nil, fmt.Errorf("shape: %d blocks on %d virtual stages; each has one at least", blocks, n)
	}
	if len(each) != n {
		return nil, fmt.Errorf("shape: blocks are given for %d of %d virtual stages", len(each), n)
	}
	cuts, at := []int{0}, first
	for k, b := range each {
		if at += b; b < 0 || k < n-1 && at > first+blocks {
			return nil, fmt.Errorf("shape: blocks are %v; there are %d", each, blocks)
		}
		cuts = append(cuts, at)
	}
	if at != first+blocks {
		return nil, fmt.Errorf("shape: blocks are %v, %d in all; there are %d", each, at-first, blocks)
	}
	cuts[n] = len(units)
	return cuts, nil
}
