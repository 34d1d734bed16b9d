package nn

import (
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model/aten/rules"
)

// moded makes a call that depends on whether the forward trains. PyTorch draws random numbers from a generator. Here
// they are drawn from counters, so that replicas and recomputation repeat them.
func (r *tracing) moded(c *rules.Call, args []any) ([]tensor, error) {
	rate := rateOf(c, args)
	if c.Mode.Train >= 0 {
		args[c.Mode.Train] = r.ctx.Training
	}
	if c.Op == "millrace::causal_attention" {
		return r.causal(c, args, rate)
	}
	if c.Mode.Rate < 0 || rate == 0 || !r.ctx.Training {
		if c.Mode.Rate >= 0 {
			args[c.Mode.Rate] = 0.0
		}
		return r.dev.Call(c.Op, args...)
	}
	name, overload, _ := strings.Cut(strings.TrimPrefix(c.Op, "aten::"), ".")
	switch name {
	case "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout":
		x := r.dropped(c, name, args[0].(tensor), rate)
		return []tensor{x}, r.err
	case "lstm", "gru", "rnn_tanh", "rnn_relu":
		if overload != "input" {
			return nil, errors.New("dropout between the layers of a packed sequence is not computed; give it dropout=0")
		}
		return r.recurrent(c, args, rate)
	}
	return nil, errors.New("its random numbers are not computed")
}

func rateOf(c *rules.Call, args []any) float64 {
	if c.Mode != nil && c.Mode.Rate >= 0 {
		switch p := args[c.Mode.Rate].(type) {
		case float64:
			return p
		case int64:
			return float64(p)
		}
	}
	return 0
}

// dropped applies one of PyTorch's dropouts to x.
func (r *tracing) dropped(c *rules.Call, name string, x tensor, p float64) tensor {
	shape := append([]int64{}, x.Shape()...)
	spread := c.Spread
	if strings.HasPrefix(name, "feature") { // drops whole channels
		for d := 2; d < len(shape); d++ {
			shape[d] = 1
		}
	}
	if !strings.Contains(name, "alpha") {
		if p == 1 {
			return r.call("aten::mul.Scalar", x, 0.0)
		}
		return r.mul(x, r.spreadMask(uint64(c.Site), x, shape, spread, p))
	}
	// Klambauer et al., Self-Normalizing Neural Networks, 2017, section 3: dropped elements get the limit of the
	// SELU for very negative inputs, and an affine map keeps mean and variance.
	const scale, alpha = 1.0507009873554805, 1.6732632423543772
	if p == 1 {
		return r.call("aten::mul.Scalar", x, 0.0)
	}
	low := -scale * alpha
	a := 1 / math.Sqrt((1-p)*(1+p*low*low))
	keep := r.call("aten::mul.Scalar", r.spreadMask(uint64(c.Site), x, shape, spread, p), 1-p) // 1 or 0
	kept := r.mul(x, keep)
	gone := r.call("aten::rsub.Scalar", r.call("aten::mul.Scalar", keep, low), low)
	return r.call("aten::add.Scalar", r.call("aten::mul.Scalar", r.add(kept, gone), a), -a*p*low)
}

// spreadMask returns a mask of a shape. If s says where the rows are, a row's part of the mask does not depend on the
// other rows in the batch. A tensor without rows gets the same mask in every slice of a micro-batch. If it is unknown
// where the rows are, only the slice that begins at row 0 gets a mask. Any other slice gets an error.
func (r *tracing) spreadMask(site uint64, like tensor, shape []int64, s rules.Spread, p float64) tensor {
	if r.err != nil {
		return nil
	}
	if s.Dim < 0 || s.Dim >= len(shape) || shape[s.Dim] != s.Lead*r.rows*s.Tail {
		if r.ctx.FirstRow > 0 && s.Dim != rules.NoRows {
			r.err = errors.New("a tensor whose rows nobody can tell apart is dropped out, which replicas of a stage could " +
				"not do alike: plan it without replicas, or drop out a tensor whose first dimension is the rows")
			return nil
		}
		whole := *r.ctx
		whole.FirstRow = 0
		return r.mask(&whole, site, like, shape, p)
	}
	first := append([]int64{r.rows}, shape[:s.Dim]...)
	if !s.Alone() {
		first = append(first, s.Lead, s.Tail)
	}
	return r.spread(r.mask(r.ctx, site, like, append(first, shape[s.Dim+1:]...), p), s)
}

// recurrent runs a network of several recurrent layers, layer by layer, with dropout between them.
func (r *tracing) recurrent(c *rules.Call, args []any, p float64) ([]tensor, error) {
	states, several := args[1].([]tensor)
	if !several {
		states = []tensor{args[1].(tensor)}
	}
	weights, layers := args[2].([]tensor), args[4].(int64)
	ways := int64(1)
	if args[7].(bool) {
		ways = 2
	}
	each := int64(len(weights)) / layers
	x := args[0].(tensor)
	last := make([][]tensor, len(states))
	for l := range layers {
		if l > 0 {
			x = r.mul(x, r.spreadMask(uint64(c.Site)<<16|uint64(l), x, x.Shape(), r.rowsOf(args[8].(bool)), p))
		}
		var own []tensor
		for _, s := range states {
			own = append(own, r.call("aten::narrow", s, 0, l*ways, ways))
		}
		one := append([]any{}, args...)
		one[0], one[2], one[4], one[5] = x, weights[l*each:(l+1)*each], int64(1), 0.0
		if one[1] = own[0]; several {
			one[1] = own
		}
		if r.err != nil {
			return nil, r.err
		}
		out, err := r.dev.Call(c.Op, one...)
		if err != nil {
			return nil, err
		}
		x = out[0]
		for i := range states {
			last[i] = append(last[i], out[1+i])
		}
	}
	results := []tensor{x}
	for _, s := range last {
		results = append(results, r.cat(s, 0))
	}
	return results, r.err
}

// rowsOf says in which dimension of a sequence the rows are.
func (r *tracing) rowsOf(batchFirst bool) rules.Spread {
	if batchFirst {
		return rules.Spread{Dim: 0, Lead: 1, Tail: 1}
	}
	return rules.Spread{Dim: 1, Lead: 1, Tail: 1}
}

// causal calls millrace's attention, whose third argument is a mask instead of a dropout rate.
func (r *tracing) causal(c *rules.Call, args []any, p float64) ([]tensor, error) {
	qkv := args[0].(tensor)
	args[2] = nil
	if r.ctx.Training && p > 0 {
		t := qkv.Shape()[1]
		args[2] = r.spreadMask(uint64(c.Site), qkv, []int64{r.rows, args[1].(int64), t, t}, c.Spread, p)
	}
	if r.err != nil {
		return nil, r.err
	}
	return r.dev.Call(c.Op, args...)
}

// attention computes softmax(s QK^T + mask)V, with dropout of the softmax. The factor s is the call's scale, or
// 1/sqrt(d) for queries of d elements. If a bool mask hides all keys from a query, the query's result is 0, as in
// PyTorch from 2.5 on.
func (r *tracing) attention(c *rules.Call, args []any) ([]tensor, error) {
	q, k, v := args[0].(tensor), args[1].(tensor), args[2].(tensor)
	shape := q.Shape()
	scale := 1 / math.Sqrt(float64(shape[len(shape)-1]))
	args = append(slices.Clip(args), make([]any, max(0, 8-len(args)))...)
	causal, _ := args[5].(bool)
	if strings.HasPrefix(c.Op, "aten::_") {
		causal, _ = args[6].(bool) // argument 5 says whether to return the weights
	} else {
		if s, given := args[6].(float64); given {
			scale = s
		}
		if grouped, _ := args[7].(bool); grouped {
			k, v = r.repeated(k, shape), r.repeated(v, shape)
		}
	}
	scores := r.call("aten::matmul", r.call("aten::mul.Scalar", q, scale), r.call("aten::transpose.int", k, -2, -1))
	var hidden tensor
	if mask, given := args[3].(tensor); given && mask.DType().IsFloat() {
		scores = r.add(scores, mask)
	} else if given {
		hidden = r.call("aten::logical_not", mask)
	}
	if r.err == nil && causal {
		n := scores.Shape()
		later := r.call("aten::gt.Scalar", r.call("aten::triu", r.call("aten::ones", n[len(n)-2:]), 1), 0.0)
		if hidden != nil {
			later = r.call("aten::logical_or", hidden, later)
		}
		hidden = later
	}
	if hidden != nil {
		scores = r.call("aten::masked_fill.Scalar", scores, hidden, -math.MaxFloat32)
	}
	weights := r.call("aten::softmax.int", scores, -1)
	if hidden != nil {
		weights = r.call("aten::masked_fill.Scalar", weights, hidden, 0.0)
	}
	dropped := weights
	if p := rateOf(c, args); p > 0 && r.ctx.Training && r.err == nil {
		dropped = r.mul(weights, r.spreadMask(uint64(c.Site), weights, weights.Shape(), c.Spread, p))
	}
	return []tensor{r.call("aten::matmul", dropped, v), weights}, r.err
}

// repeated repeats each head of keys or values for all heads of queries that use it.
func (r *tracing) repeated(x tensor, queries []int64) tensor {
	if n := x.Shape(); len(n) > 2 && len(queries) > 2 {
		heads := len(n) - 3
		return r.call("aten::repeat_interleave.self_int", x, queries[len(queries)-3]/max(1, n[heads]), heads)
	}
	return x
}
