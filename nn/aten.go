package nn

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/aten"
	"github.com/millrace-ml/millrace/model/aten/rules"
)

func init() {
	Register("aten", func(l model.Layer) (Layer, error) {
		p, ok := l.Attr["program"].(*rules.Program)
		if !ok || len(l.Params) < p.Params {
			return nil, fmt.Errorf("its setting program is a %T for %d parameters; it is made by importing a network",
				l.Attr["program"], len(l.Params))
		}
		return &traced{Program: p, layer: &l}, nil
	})
}

// traced computes a layer of an imported network, call by call.
type traced struct {
	*rules.Program
	layer   *model.Layer
	checked atomic.Int64 // the number of rows of the last forward, whose shapes have been checked; 0 means none
}

// State implements Stateful.
func (t *traced) State() []int { return t.Program.State }

// Forward implements Layer.
func (t *traced) Forward(ctx *Context, in Bundle) (Bundle, error) {
	if err := take(in, len(t.Inputs)+others(t.layer.Piece)); err != nil {
		return nil, err
	}
	in, made := in[:len(t.Inputs)], in[len(t.Inputs):]
	r := &tracing{ops: ops{dev: ctx.Device}, ctx: ctx, values: make([]tensor, t.Values), state: t.Program.State}
	if err := r.begin(); err != nil {
		return nil, err
	}
	shape := in[t.Rows].Tensor.Shape()
	if len(shape) == 0 {
		return nil, fmt.Errorf("nn: %s has no rows", in[t.Rows].Name)
	}
	r.rows = shape[0]
	for i, x := range in {
		r.values[i] = r.spread(x.Tensor, t.Inputs[i])
	}
	if r.err != nil {
		return nil, r.err
	}
	r.example, r.check = t.Example, t.layer.Piece == nil && t.checked.Load() != r.rows
	for i := range t.Calls {
		c := &t.Calls[i]
		if err := r.run(c); err != nil {
			return nil, &CallError{c.Op, c.Where, r.explained(c, err)}
		}
	}
	t.checked.Store(r.rows)
	if err := r.keep(); err != nil {
		return nil, err
	}
	out := make(Bundle, len(t.Out))
	for i, v := range t.Out {
		x := r.values[v]
		if !t.Loss {
			x = r.rowsFirst(x, t.Yields[i])
		} else if len(x.Shape()) > 0 {
			x = r.reshape(x, []int64{})
		}
		if t.layer.Piece != nil {
			x, _ = r.joined(t.layer.Piece, made, x)
		}
		out[i].Tensor = r.contiguous(x)
	}
	return out, r.err
}

// tracing is one forward of a traced layer.
type tracing struct {
	ops
	ctx    *Context
	values []tensor
	params []tensor
	state  []int // indices into params; see rules.Program
	rows   int64

	example int64 // rows of the exported example
	check   bool  // compare shapes with the recorded ones
}

// begin copies the layer's state, so that calls can change the copy. A backward of an earlier forward may still read
// the old state, and an evaluation must not change it.
func (r *tracing) begin() error {
	r.params = r.ctx.Params
	if len(r.state) == 0 {
		return nil
	}
	r.params = slices.Clone(r.params)
	return r.dev.NoGrad(func() (err error) {
		for _, i := range r.state {
			if r.params[i], err = engine.Copy(r.dev, r.params[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// keep writes the changed state back, except in an evaluation and in a recomputed forward. So the state changes once
// for each micro-batch of a training.
func (r *tracing) keep() error {
	if !r.ctx.Training || r.ctx.Recomputing {
		return nil
	}
	return r.dev.NoGrad(func() error {
		for _, i := range r.state {
			if err := engine.CopyInto(r.dev, r.ctx.Params[i], r.params[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// spread moves the rows of x from the first dimension to the place that s describes.
func (r *tracing) spread(x tensor, s rules.Spread) tensor {
	if r.err != nil || s.Dim < 0 || s.Dim == 0 && s.Alone() {
		return x
	}
	if s.Alone() {
		return r.call("aten::movedim.int", x, 0, int64(s.Dim))
	}
	// The dimensions [rows, before..., lead, tail, after...] become [before..., lead x rows x tail, after...].
	x = r.call("aten::movedim.int", x, 0, int64(s.Dim)+1)
	if r.err != nil {
		return nil
	}
	shape := x.Shape()
	to := append(slices.Clone(shape[:s.Dim]), shape[s.Dim]*shape[s.Dim+1]*shape[s.Dim+2])
	return r.reshape(x, append(to, shape[s.Dim+3:]...))
}

// rowsFirst moves the rows of x from the place that s describes to the first dimension.
func (r *tracing) rowsFirst(x tensor, s rules.Spread) tensor {
	if r.err != nil || s.Dim < 0 || s.Dim == 0 && s.Alone() {
		return x
	}
	if s.Alone() {
		return r.call("aten::movedim.int", x, int64(s.Dim), 0)
	}
	shape := x.Shape()
	to := append(slices.Clone(shape[:s.Dim]), s.Lead, r.rows, s.Tail)
	return r.call("aten::movedim.int", r.reshape(x, append(to, shape[s.Dim+1:]...)), int64(s.Dim)+1, 0)
}

// run makes one call, as training, evaluation or recomputation requires. If buffers must not change, it leaves out a
// call that only writes a buffer.
func (r *tracing) run(c *rules.Call) error {
	args := make([]any, len(c.In))
	for i, o := range c.In {
		if args[i], r.err = r.argument(o); r.err != nil {
			return fmt.Errorf("argument %d: %w", i, r.err)
		}
	}
	copied := len(c.Updates) > 0 && slices.Contains(r.state, c.Updates[0])
	switch {
	case len(c.Updates) > 0 && c.Norm():
		if !copied && (r.ctx.Recomputing || !r.ctx.Training && c.Mode == nil) {
			args[3], args[4] = nil, nil // running statistics do not change; the batch is normalised by its own statistics
		}
	case len(c.Updates) > 0 && len(c.Out) == 0:
		if !copied && (r.ctx.Recomputing || !r.ctx.Training) || !r.ctx.Training && !c.Always {
			return nil
		}
		return r.dev.NoGrad(func() error {
			_, err := r.dev.Call(c.Op, args...)
			return err
		})
	}
	var results []tensor
	switch {
	case strings.HasSuffix(c.Op, "scaled_dot_product_attention"): // its arguments differ between versions of PyTorch
		results, r.err = r.attention(c, args)
	case c.Mode == nil:
		results, r.err = r.dev.Call(c.Op, args...)
	default:
		results, r.err = r.moded(c, args)
	}
	if r.err == nil && len(results) < len(c.Out) {
		r.err = fmt.Errorf("it yields %d tensors, and %d are read", len(results), len(c.Out))
	}
	if r.err != nil {
		return r.err
	}
	for i, v := range c.Out {
		r.values[v] = results[i]
		if x := results[i]; r.check && x != nil && !c.Shapes[i].Agrees(x.Shape(), r.rows, r.example) {
			return &ShapeError{x.Shape(), r.rows, c.Shapes[i].Once, r.example}
		}
	}
	return nil
}

// argument returns the value of an operand in this forward.
func (r *tracing) argument(o rules.Operand) (any, error) {
	switch o.Kind {
	case rules.FromValue:
		return r.values[o.Index], nil
	case rules.FromTensor:
		return r.params[o.Index], nil
	case rules.Size:
		return o.Size.Eval(r.rows)
	case rules.Wrapped:
		return r.wrapped(o)
	case rules.Literal:
		return literal(o.Literal), nil
	case rules.List:
		return r.list(o.List)
	}
	return nil, nil
}

func literal(a aten.Arg) any {
	switch a.Kind {
	case aten.Int:
		return a.Int
	case aten.Float:
		return a.Float
	case aten.Bool:
		return a.Bool
	case aten.Word:
		return a.Text
	case aten.Device:
		return engine.Here{}
	}
	return nil
}

// wrapped returns a number as a scalar tensor, for arguments that take tensors. An int becomes int64, a bool becomes
// bool, and a float gets the element type that the network computes in.
func (r *tracing) wrapped(o rules.Operand) (tensor, error) {
	switch {
	case o.Size != nil:
		n, err := o.Size.Eval(r.rows)
		if err != nil {
			return nil, err
		}
		return r.dev.Full(engine.Int64, nil, float64(n))
	case o.Literal.Kind == aten.Int:
		return r.dev.Full(engine.Int64, nil, float64(o.Literal.Int))
	case o.Literal.Kind == aten.Bool && o.Literal.Bool:
		return r.dev.Full(engine.Bool, nil, 1)
	case o.Literal.Kind == aten.Bool:
		return r.dev.Full(engine.Bool, nil, 0)
	}
	return r.dev.Full(r.float(), nil, o.Literal.Float)
}

// float returns the type of the first float tensor among the parameters and the values so far, or Float32.
func (r *tracing) float() engine.DType {
	for _, t := range append(r.ctx.Params, r.values...) {
		if t != nil && t.DType().IsFloat() {
			return t.DType()
		}
	}
	return engine.Float32
}

// list returns a list of one type: tensors (some may be missing), floats, bools, or otherwise ints.
func (r *tracing) list(of []rules.Operand) (any, error) {
	all := make([]any, len(of))
	var tensors []tensor
	var ints []int64
	var floats []float64
	var bools []bool
	for i, o := range of {
		var err error
		if all[i], err = r.argument(o); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		switch x := all[i].(type) {
		case nil:
			tensors = append(tensors, nil)
		case tensor:
			tensors = append(tensors, x)
		case int64:
			ints, floats = append(ints, x), append(floats, float64(x))
		case float64:
			floats = append(floats, x)
		case bool:
			bools = append(bools, x)
		}
	}
	switch len(of) {
	case len(ints):
		return ints, nil
	case len(floats):
		return floats, nil
	case len(bools):
		return bools, nil
	case len(tensors):
		return tensors, nil
	}
	return nil, fmt.Errorf("a list of several types, %v", all)
}
