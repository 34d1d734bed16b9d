package ref

import (
	"fmt"
	"slices"
)

// work is the second half of a backward, which computes the gradients of weights. For each operator with weights,
// `nodes` has a node whose only inputs are the weights. `grads` has the gradient of the operator's output.
type work struct {
	d     *Device
	nodes []*node
	grads []value
	done  bool
}

// withoutWeights returns a copy of n without those inputs that are both weights and leaves. Another copy, which has
// only these inputs, is kept in w for Run. If n has no such inputs, withoutWeights returns n itself.
func (w *work) withoutWeights(n *node, g value) *node {
	if len(n.weights) == 0 {
		return n
	}
	first, second := *n, *n
	first.inputs, second.inputs = slices.Clone(n.inputs), make([]*node, len(n.inputs))
	wanted := false
	for _, i := range n.weights {
		if in := n.inputs[i]; in != nil && in.leaf {
			first.inputs[i], second.inputs[i], wanted = nil, in.retain(), true
		}
	}
	if !wanted {
		return n
	}
	second.saved, second.refs = slices.Clone(n.saved), 1
	for i, v := range second.saved {
		second.saved[i] = v.retained()
	}
	w.nodes, w.grads = append(w.nodes, &second), append(w.grads, g.retained())
	return &first
}

// Size implements engine.Work.
func (w *work) Size() int { return len(w.nodes) }

// Run implements engine.Work.
func (w *work) Run() error {
	if w.done {
		return fmt.Errorf("engine ref: the weights' half of a backward has been run or freed")
	}
	for k, n := range w.nodes {
		for i, g := range n.back(n, w.grads[k]) {
			if g == nil {
				continue
			}
			if leaf := n.inputs[i]; leaf != nil {
				w.d.gather(leaf, *g)
			}
			g.release()
		}
	}
	w.Free()
	return nil
}

// Free implements engine.Work.
func (w *work) Free() {
	for k, n := range w.nodes {
		n.release()
		w.grads[k].release()
	}
	w.nodes, w.grads, w.done = nil, nil, true
}

// gather adds g to a leaf's gradient.
func (d *Device) gather(leaf *node, g value) {
	from := g.floats
	if leaf.grad == nil {
		own := d.fresh(g.dtype, g.shape) // leaves must not share memory with gradients that are used elsewhere
		d.issue(func() { copy(own.floats, from) })
		leaf.grad = &own
		return
	}
	to := leaf.grad.floats
	d.issue(func() {
		for i := range from {
			to[i] += from[i]
		}
	})
}
