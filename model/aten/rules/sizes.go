package rules

import (
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model/aten"
)

var (
	// alike lists operators whose result has the shape of the first argument.
	alike = set(`relu relu6 gelu silu mish tanh sigmoid softplus elu celu selu leaky_relu prelu hardtanh hardswish
		hardsigmoid log_sigmoid softmax log_softmax _softmax _log_softmax dropout feature_dropout alpha_dropout
		feature_alpha_dropout batch_norm instance_norm layer_norm group_norm contiguous clone detach to type_as neg exp
		log log2 log1p expm1 sqrt rsqrt reciprocal abs sin cos erf clamp clamp_min clamp_max pow square sign floor ceil
		round masked_fill zeros_like ones_like full_like empty_like logical_not bitwise_not triu tril cumsum cumprod
		flip roll index_put scatter scatter_add index_add index_fill index_copy select_scatter slice_scatter
		diagonal_scatter alias normalize`)

	// broadcast lists operators whose result has the shape to which their tensors are broadcast.
	broadcast = set(`add sub mul div rsub pow eq ne lt le gt ge maximum minimum where atan2 remainder fmod floor_divide
		logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor __and__ __or__ __xor__ lerp addcmul addcdiv
		masked_fill binary_cross_entropy_with_logits`)

	// samplewise lists operators that keep the first dimension of their first argument, and compute the other sizes.
	samplewise = set(`convolution _convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
		max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
		adaptive_max_pool2d upsample_nearest1d upsample_nearest2d upsample_bilinear2d upsample_bicubic2d pixel_shuffle
		pixel_unshuffle max_pool2d_with_indices constant_pad_nd reflection_pad2d replication_pad2d pad glu`)
)

// sizes returns the sizes of a node's result; a nil size is unknown. A result that depends on no input has the sizes of
// the example. For any other result, a rule for the operator gives the sizes if it agrees with the example. Without
// such a rule, sizes compares the example with `double`, the example with twice the rows. Without `double`, it takes
// the sizes of the example that are no multiple of the rows.
func (f *facts) sizes(n *Node, k int, v *Value, double []int64) []*Expr {
	if len(double) != len(v.Shape) {
		double = nil
	}
	if v.Shape != nil && !v.Batch {
		return constants(v.Shape)
	}
	if dims := f.ruled(n, k, v); dims != nil {
		if got := evaluated(dims, f.g.Rows); got != nil && (v.Shape == nil || slices.Equal(got, v.Shape) &&
			(double == nil || slices.Equal(evaluated(dims, 2*f.g.Rows), double))) {
			return dims
		}
	}
	if v.Shape == nil {
		return nil
	}
	dims := constants(v.Shape)
	for i, d := range v.Shape {
		switch {
		case f.counts(n), double == nil && d%f.g.Rows == 0:
			dims[i] = nil // this size may be the batch, or depend on the contents of tensors
		case double != nil && d != double[i]:
			dims[i] = nil
			if per := d / f.g.Rows; d == per*f.g.Rows && double[i] == 2*d {
				dims[i] = product(constant(per), rowsExpr)
			}
		}
	}
	return dims
}

// counts says whether the number of elements of a node's result depends on the contents of tensors.
func (f *facts) counts(n *Node) bool {
	b := base(n.Op)
	if b == "index" && len(n.In) > 1 {
		return slices.ContainsFunc(n.In[1].List, func(a Arg) bool {
			t := f.describe(a).DType
			return t == "BOOL" || t == "U8"
		})
	}
	return b == "masked_select" || b == "nonzero" || b == "repeat_interleave" || strings.Contains(b, "unique")
}

// ruled returns the sizes that a rule gives for an operator's result, or nil if there is no rule.
func (f *facts) ruled(n *Node, k int, v *Value) []*Expr {
	b := base(n.Op)
	if len(n.In) == 0 {
		return nil
	}
	var x []*Expr
	if n.In[0].Kind == FromValue || n.In[0].Kind == FromTensor {
		x = f.describe(n.In[0]).Dims
	}
	switch {
	case broadcast[b] && overload(n.Op) != "Scalar":
		return f.broadcasted(n.In)
	case alike[b], broadcast[b]:
		return x
	case samplewise[b]:
		return front(x, v.Shape, 1)
	case b == "embedding" && len(n.In) > 1 && n.In[1].Kind != Size && len(x) == 2:
		if of := f.describe(n.In[1]).Dims; of != nil {
			return append(slices.Clone(of), x[1])
		}
		return nil
	case strings.HasSuffix(b, "scaled_dot_product_attention") && len(n.In) > 2 && k == 0 && len(x) > 0:
		of := f.describe(n.In[2]).Dims
		if len(of) == 0 {
			return nil
		}
		return append(slices.Clone(x[:len(x)-1]), of[len(of)-1])
	case moved[b]:
		return f.movedSizes(b, n, x)
	case b == "view" || b == "reshape" || b == "_reshape_alias":
		return f.listed(n.In[1:], x)
	case created[b]:
		return f.listed(n.In, nil)
	case b == "new_zeros" || b == "new_ones" || b == "new_full" || b == "new_empty":
		return f.listed(n.In[1:], nil)
	case b == "expand" || b == "broadcast_to":
		return f.expanded(n.In, x)
	case (b == "expand_as" || b == "view_as" || b == "reshape_as") && len(n.In) > 1:
		return f.describe(n.In[1]).Dims
	case b == "flatten", b == "unflatten", b == "cat", b == "stack", b == "chunk", b == "split",
		b == "split_with_sizes", b == "unbind":
		return f.regrouped(b, n, x, k, v)
	case b == "linear" || b == "matmul" || b == "mm" || b == "bmm" || b == "addmm" || b == "baddbmm":
		return f.multiplied(b, n)
	case reduced[b]:
		return f.reducedSizes(b, n, x)
	case b == "lstm" || b == "gru" || b == "rnn_tanh" || b == "rnn_relu":
		return f.recurrent(n, x, k, v)
	case b == "arange":
		return f.counting(n)
	case b == "index_select" || b == "gather":
		return f.picked(b, n, x)
	}
	return nil
}

// front takes the first `count` sizes from x, and the others from the example.
func front(x []*Expr, shape []int64, count int) []*Expr {
	if len(x) < count || len(shape) < count {
		return nil
	}
	dims := constants(shape)
	for i, d := range x {
		if i < count {
			dims[i] = d
		} else if d == nil {
			return nil
		} else if _, fixed := d.Const(); !fixed {
			return nil
		}
	}
	return dims
}

func (f *facts) broadcasted(in []Arg) []*Expr {
	dims := []*Expr{}
	for _, a := range in {
		if a.Kind != FromValue && a.Kind != FromTensor {
			continue
		}
		x := f.describe(a).Dims
		if x == nil {
			return nil
		}
		for len(dims) < len(x) {
			dims = append([]*Expr{constant(1)}, dims...)
		}
		for i, d := range x {
			at := len(dims) - len(x) + i
			if d == nil {
				dims[at] = nil
			} else if dims[at] != nil && isOne(dims[at]) {
				dims[at] = d
			}
		}
	}
	return dims
}

// listed reads sizes from a list among the arguments. A size of -1 is computed from the number of elements of x.
func (f *facts) listed(in []Arg, x []*Expr) []*Expr {
	if len(in) == 0 || in[0].Kind != List {
		return nil
	}
	dims, open := make([]*Expr, len(in[0].List)), -1
	rest := constant(1)
	for i, a := range in[0].List {
		if a.Kind != Size {
			return nil
		}
		if c, fixed := a.Size.Const(); fixed && c < 0 {
			if c != -1 || open >= 0 {
				return nil
			}
			open = i
			continue
		}
		dims[i] = a.Size
		rest = product(rest, a.Size)
	}
	if open < 0 {
		return dims
	}
	all := constant(1)
	for _, d := range x {
		all = product(all, d)
	}
	if x == nil || all == nil || rest == nil {
		return nil
	}
	dims[open], _ = combine('/', all, rest)
	return dims
}

// product multiplies two sizes. It returns nil if one is unknown or the product is too large.
func product(a, b *Expr) *Expr {
	if a == nil || b == nil {
		return nil
	}
	c, err := combine('*', a, b)
	if err != nil {
		return nil
	}
	return c
}

func (f *facts) expanded(in []Arg, x []*Expr) []*Expr {
	if len(in) < 2 || in[1].Kind != List || x == nil || len(in[1].List) < len(x) {
		return nil
	}
	dims := make([]*Expr, len(in[1].List))
	for i, a := range in[1].List {
		if a.Kind != Size {
			return nil
		}
		dims[i] = a.Size
		if c, fixed := a.Size.Const(); fixed && c == -1 {
			at := i - (len(dims) - len(x))
			if at < 0 {
				return nil
			}
			dims[i] = x[at]
		}
	}
	return dims
}

var created = set("zeros ones full empty")

// literalBool returns argument i if it is a fixed flag, and otherwise the default.
func literalBool(in []Arg, i int, otherwise bool) bool {
	if i < len(in) && in[i].Kind == Literal && in[i].Literal.Kind == aten.Bool {
		return in[i].Literal.Bool
	}
	return otherwise
}
