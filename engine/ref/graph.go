package ref

import (
	"fmt"
	"maps"
	"slices"
)

// node is a step of a graph: the call that computed a value, or a leaf that accumulates gradients.
type node struct {
	inputs []*node // an input is nil if it gets no gradient
	saved  []value
	// back computes the gradients of the inputs from the output's gradient. A result that is not wanted may be nil.
	back    func(n *node, g value) []*value
	weights []int // indices of the inputs that are weights: their gradients may be computed later
	shape   []int64
	leaf    bool
	grad    *value
	refs    int
}

func (n *node) retain() *node {
	if n != nil {
		n.refs++
	}
	return n
}

// release drops a reference to the node. If it was the last one, the node releases what it holds.
func (n *node) release() {
	if n == nil {
		return
	}
	if n.refs--; n.refs > 0 {
		return
	}
	n.forget()
	if n.grad != nil {
		n.grad.release()
		n.grad = nil
	}
}

// forget releases the saved values, and the references to the inputs.
func (n *node) forget() {
	for _, v := range n.saved {
		v.release()
	}
	inputs := n.inputs
	n.saved, n.inputs = nil, nil
	for _, in := range inputs {
		in.release()
	}
}

// order lists the nodes that outputs depend on, each before its inputs.
func order(roots []*node) []*node {
	var list []*node
	seen := map[*node]bool{}
	var visit func(n *node)
	visit = func(n *node) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		for _, in := range n.inputs {
			visit(in)
		}
		list = append(list, n)
	}
	for _, r := range roots {
		visit(r)
	}
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list
}

// flow sends gradients from roots back through their graph, and returns the gradient that has reached each leaf. It
// adds operators whose weights get their gradients later to `later`. It takes over the references of `grads`.
func (d *Device) flow(roots []*node, grads []value, later *work) (map[*node]value, error) {
	at := map[*node]value{}
	add := func(n *node, g value) {
		if before, ok := at[n]; ok {
			sum, a, b := d.fresh(g.dtype, g.shape), before.floats, g.floats
			d.issue(func() {
				for i := range sum.floats {
					sum.floats[i] = a[i] + b[i]
				}
			})
			before.release()
			g.release()
			g = sum
		}
		at[n] = g
	}
	for i, r := range roots {
		add(r, grads[i])
	}
	out := map[*node]value{}
	for _, n := range order(roots) {
		g, ok := at[n]
		if !ok {
			continue
		}
		delete(at, n)
		if n.leaf {
			out[n] = g.retained()
		} else {
			if n.back == nil || n.inputs == nil {
				g.release()
				releaseAll(slices.Collect(maps.Values(at)))
				return out, fmt.Errorf("the graph has been freed by an earlier backward")
			}
			now := later.withoutWeights(n, g)
			for i, gi := range now.back(now, g) {
				switch {
				case gi == nil:
				case now.inputs[i] == nil:
					gi.release()
				default:
					add(now.inputs[i], *gi)
				}
			}
		}
		g.release()
	}
	return out, nil
}
