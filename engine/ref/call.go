package ref

import (
	"fmt"

	"github.com/millrace-ml/millrace/engine"
)

// operator computes results from checked arguments.
type operator func(c *call) []value

// operators holds the operators of this engine, by dispatcher name.
var operators = map[string]operator{}

// call is one call of an operator: its arguments by position, and what the graph keeps of the call.
type call struct {
	d    *Device
	op   string
	args []any
	err  error
	// inputs are the tensors that gradients may flow to. The operator sets them.
	inputs []*Tensor
	saved  []value
	// weights are the indices of those inputs whose gradients BackwardInput leaves for later.
	weights []int
	own     []value // values made only for the graph; the call releases its own references to them when it ends
	back    func(n *node, g value) []*value
	same    *Tensor // the first argument, which in-place operators return
}

// issue runs f at once or, on a lazy device, after the work issued before.
func (d *Device) issue(f func()) {
	if d.compute == nil {
		f()
		return
	}
	d.compute.do(func() error {
		f()
		return nil
	})
}

// do issues f, the loops of an operator. If f fails, the call fails or, on a lazy device, the stream does.
func (c *call) do(f func() error) {
	if c.d.compute == nil {
		if err := f(); err != nil {
			c.fail("%w", err)
		}
		return
	}
	c.d.compute.do(func() error {
		if err := f(); err != nil {
			return fmt.Errorf("engine ref: %s: %w", c.op, err)
		}
		return nil
	})
}

// loop is like do, for work that cannot fail.
func (c *call) loop(f func()) { c.d.issue(f) }

// Call implements engine.Device.
func (d *Device) Call(op string, args ...any) ([]engine.Tensor, error) {
	f, ok := operators[op]
	if !ok {
		return nil, fmt.Errorf("engine ref: there is no operator %s; engine torch has it", op)
	}
	c := &call{d: d, op: op, args: args}
	values := f(c)
	defer func() {
		for _, v := range c.own {
			v.release()
		}
	}()
	if c.err != nil {
		for _, v := range values {
			v.release()
		}
		return nil, fmt.Errorf("engine ref: %s: %w", op, c.err)
	}
	if c.same != nil {
		return []engine.Tensor{d.handle(c.same.retained(), c.same.node)}, nil
	}
	out := make([]engine.Tensor, len(values))
	for i, v := range values {
		out[i] = d.handle(v, c.node(v))
	}
	return out, nil
}

// node returns the graph's record of this call, or nil if no gradient flows through the call.
func (c *call) node(out value) *node {
	if c.back == nil || !c.d.tracking {
		return nil
	}
	n := &node{back: c.back, shape: out.shape, weights: c.weights}
	some := false
	for _, in := range c.inputs {
		var from *node
		if in != nil {
			from = in.node.retain()
		}
		n.inputs = append(n.inputs, from)
		some = some || from != nil
	}
	if !some {
		return nil
	}
	for _, v := range c.saved {
		n.saved = append(n.saved, v.retained())
	}
	return n
}

func (c *call) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// tensor returns argument i, or nil if it is missing and optional.
func (c *call) tensor(i int, optional bool) *Tensor {
	if i >= len(c.args) || c.args[i] == nil {
		if !optional {
			c.fail("argument %d is missing; it takes a tensor", i)
		}
		return nil
	}
	t, ok := c.args[i].(engine.Tensor)
	if !ok {
		c.fail("argument %d is a %T; it takes a tensor", i, c.args[i])
		return nil
	}
	r, err := tensorOf(t)
	if err != nil {
		c.fail("argument %d: %w", i, err)
	}
	return r
}

// floats returns a tensor argument of floats; whole numbers are refused.
func (c *call) floats(i int, optional bool) *Tensor {
	t := c.tensor(i, optional)
	if c.err == nil && t != nil && !t.dtype.IsFloat() {
		c.fail("argument %d is of type %v; it takes floats", i, t.dtype)
	}
	return t
}

func (c *call) number(i int, fallback float64) float64 {
	if i >= len(c.args) {
		return fallback
	}
	switch x := c.args[i].(type) {
	case float64:
		return x
	case int:
		return float64(x)
	case int64:
		return float64(x)
	}
	c.fail("argument %d is a %T; it takes a number", i, c.args[i])
	return fallback
}

func (c *call) whole(i int) int64 {
	if i < len(c.args) {
		switch x := c.args[i].(type) {
		case int:
			return int64(x)
		case int64:
			return x
		}
	}
	c.fail("argument %d; it takes a whole number", i)
	return 0
}

func (c *call) shape(i int) []int64 {
	if i < len(c.args) {
		if s, ok := c.args[i].([]int64); ok {
			return s
		}
	}
	c.fail("argument %d; it takes a list of whole numbers", i)
	return nil
}
