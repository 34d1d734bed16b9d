package rules

import "strings"

// set makes a set of the words of a text.
func set(words string) map[string]bool {
	s := map[string]bool{}
	for _, w := range strings.Fields(words) {
		s[w] = true
	}
	return s
}

// base returns an operator's name without its namespace and overload: "add_" for "aten::add_.Tensor". If millrace's own
// operator replaces a single one of PyTorch (package fuse), the two operators usually have the same base name. An
// operator that replaces several has a name of its own, such as linear_gelu.
func base(op string) string {
	op = strings.TrimPrefix(strings.TrimPrefix(op, "aten::"), "millrace::")
	name, _, _ := strings.Cut(op, ".")
	return name
}

// overload returns the part of an operator's name after the dot.
func overload(op string) string {
	_, o, _ := strings.Cut(op, ".")
	return o
}

var (
	// random lists operators that draw random numbers which millrace cannot draw again from its own counters.
	random = set(`rand randn randint randperm rand_like randn_like randint_like bernoulli bernoulli_ normal normal_
		multinomial poisson rrelu rrelu_ rrelu_with_noise rrelu_with_noise_ uniform_ random_ exponential_ geometric_
		cauchy_ log_normal_ binomial native_dropout _fused_dropout _standard_gamma _sample_dirichlet
		fractional_max_pool2d fractional_max_pool3d`)

	// views lists operators whose result always shares the elements of the first argument. Some return lists of
	// views.
	views = set(`alias as_strided broadcast_to detach diagonal expand expand_as movedim moveaxis narrow permute select
		squeeze transpose t numpy_T matrix_H mT mH adjoint real imag view_as_real view_as_complex unflatten unfold
		unsqueeze view view_as unbind split hsplit vsplit dsplit tensor_split split_with_sizes swapaxes swapdims chunk
		slice`)

	// maybe lists operators whose result shares the elements of the first argument if strides and types allow it. A
	// graph does not say whether the result shares them.
	maybe = set(`reshape reshape_as flatten ravel contiguous to type_as cpu cuda positive conj resolve_conj resolve_neg
		lift_fresh lift atleast_1d atleast_2d atleast_3d data requires_grad einsum sum_to_size _to_copy
		meshgrid broadcast_tensors _reshape_alias pin_memory float`)

	// metadata lists operators that change a tensor's properties, but not its elements.
	metadata = set(`set_ resize_ resize_as_ detach_ requires_grad_ squeeze_ unsqueeze_ transpose_ t_ swapaxes_ swapdims_
		as_strided_ rename_ swap_ data_`)

	compared = set(`eq ne lt le gt ge logical_and logical_or logical_xor logical_not`)

	// noGrad lists operators whose result has no gradient, even if their arguments have one.
	noGrad = set(`detach zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty floor ceil
		round trunc sign bincount one_hot histc`)

	heavy = set(`linear addmm mm bmm baddbmm matmul einsum convolution _convolution conv1d conv2d conv3d
		conv_transpose1d conv_transpose2d conv_transpose3d lstm gru rnn_tanh rnn_relu scaled_dot_product_attention
		_scaled_dot_product_attention embedding embedding_bag bilinear gru_cell lstm_cell rnn_tanh_cell rnn_relu_cell
		linear_gelu linear_add causal_attention`)

	// scalars maps an overload that takes a tensor to the overload that takes a number instead.
	scalars = map[string]string{
		"add.Tensor": "add.Scalar", "sub.Tensor": "sub.Scalar", "mul.Tensor": "mul.Scalar", "div.Tensor": "div.Scalar",
		"div.Tensor_mode": "div.Scalar_mode", "rsub.Tensor": "rsub.Scalar", "eq.Tensor": "eq.Scalar",
		"ne.Tensor": "ne.Scalar", "lt.Tensor": "lt.Scalar", "le.Tensor": "le.Scalar", "gt.Tensor": "gt.Scalar",
		"ge.Tensor": "ge.Scalar", "remainder.Tensor": "remainder.Scalar", "fmod.Tensor": "fmod.Scalar",
		"pow.Tensor_Tensor":  "pow.Tensor_Scalar",
		"bitwise_and.Tensor": "bitwise_and.Scalar", "bitwise_or.Tensor": "bitwise_or.Scalar",
		"bitwise_xor.Tensor": "bitwise_xor.Scalar", "__and__.Tensor": "__and__.Scalar",
		"__or__.Tensor": "__or__.Scalar",
	}

	// tensorAt lists arguments that are tensors in an operator's schema but may be given as numbers. Arguments 0 and
	// 1 of overloads whose name contains Tensor are not listed.
	tensorAt = map[string][]int{
		"where.self": {1, 2}, "maximum": {0, 1}, "minimum": {0, 1}, "masked_fill.Tensor": {2}, "index_put": {2},
		"atan2": {0, 1}, "logical_and": {0, 1}, "logical_or": {0, 1}, "logical_xor": {0, 1}, "floor_divide": {0, 1},
		"fill.Tensor": {1}, "lerp.Tensor": {2}, "expand_as": {0}, "type_as": {0}, "pow.Tensor_Tensor": {0, 1},
		"sqrt": {0}, "rsqrt": {0}, "exp": {0}, "log": {0}, "reciprocal": {0}, "pow.Tensor_Scalar": {0}, "to.dtype": {0},
		"to.device": {0}, "to.other": {0}, "to.dtype_layout": {0},
		"neg": {0}, "div.Tensor_mode": {0, 1}, "pow.Scalar": {1}, "rsub.Scalar": {0}, "mul.Scalar": {0},
		"add.Scalar": {0}, "sub.Scalar": {0}, "div.Scalar": {0}, "ceil": {0}, "floor": {0}, "abs": {0},
	}

	// modes lists the arguments that depend on whether the caller trains.
	modes = map[string]Mode{
		"batch_norm": {5, -1}, "instance_norm": {5, -1}, "dropout": {2, 1}, "feature_dropout": {2, 1},
		"alpha_dropout": {2, 1}, "feature_alpha_dropout": {2, 1},
		"lstm.input": {6, 5}, "gru.input": {6, 5}, "rnn_tanh.input": {6, 5}, "rnn_relu.input": {6, 5},
		"lstm.data": {7, 6}, "gru.data": {7, 6}, "rnn_tanh.data": {7, 6}, "rnn_relu.data": {7, 6},
		"scaled_dot_product_attention": {-1, 4}, "_scaled_dot_product_attention": {-1, 4},
	}
)

// inPlace says whether an operator writes its first argument.
func inPlace(op string) bool {
	b := base(op)
	if strings.HasPrefix(b, "__i") && strings.HasSuffix(b, "__") && b != "__invert__" {
		return true
	}
	return strings.HasSuffix(b, "_") && !strings.HasSuffix(b, "__")
}

// functional returns the operator that computes the result of an in-place operator without writing.
func functional(op string) string {
	b := base(op)
	f := strings.TrimSuffix(b, "_")
	if strings.HasPrefix(b, "__i") {
		f = "__" + strings.TrimPrefix(b, "__i")
	}
	if o := overload(op); o != "" {
		f += "." + o
	}
	return "aten::" + f
}
