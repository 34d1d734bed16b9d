package nn

import (
	"errors"
	"math"
	"strings"

	"github.com/millrace-ml/millrace/model/aten/rules"
)

// moded makes a call that depends on whether the forward trains. What PyTorch draws from a generator is drawn from
// counters here, so that replicas and recomputation repeat it.
func (r *tracing) moded(c *rules.Call, args []any) ([]tensor, error) {
	rate := 0.0
	if c.Mode.Rate >= 0 {
		switch p := args[c.Mode.Rate].(type) {
		case float64:
			rate = p
		case int64:
			rate = float64(p)
		}
	}
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
	case "scaled_dot_product_attention", "_scaled_dot_product_attention":
		return r.attention(c, args, rate)
	}
	return nil, errors.New("its random numbers are not computed")
}

// dropped is one of PyTorch's dropouts of x.
func (r *tracing) dropped(c *rules.Call, name string, x tensor, p float64) tensor {
	shape := append([]int64{}, x.Shape()...)
	spread := c.Spread
	if strings.HasPrefix(name, "feature") { // whole channels
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
	// Klambauer et al., Self-Normalizing Neural Networks, 2017, section 3: what is dropped takes the value that a SELU has
	// far to the left, and an affine map keeps mean and variance.
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

// spreadMask is a mask of a shape in which a row of the batch has the same elements whatever rows are beside it.
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

// recurrent runs layer by layer a network of several recurrent layers with dropout in between.
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

// rowsOf is where the rows lie in a sequence.
func (r *tracing) rowsOf(batchFirst bool) rules.Spread {
	if batchFirst {
		return rules.Spread{Dim: 0, Lead: 1, Tail: 1}
	}
	return rules.Spread{Dim: 1, Lead: 1, Tail: 1}
}

// causal is millrace's attention, whose third argument is a mask in place of a rate.
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

// attention is softmax(QK'/sqrt(d) + mask)V with dropout of the softmax.
func (r *tracing) attention(c *rules.Call, args []any, p float64) ([]tensor, error) {
	q, k, v := args[0].(tensor), args[1].(tensor), args[2].(tensor)
	shape := q.Shape()
	scale := 1 / math.Sqrt(float64(shape[len(shape)-1]))
	causal := 5
	if strings.HasPrefix(c.Op, "aten::_") {
		causal = 6 // behind whether the weights are wanted
	} else if len(args) > 6 {
		if s, given := args[6].(float64); given {
			scale = s
		}
	}
	scores := r.call("aten::matmul", r.call("aten::mul.Scalar", q, scale), r.call("aten::transpose.int", k, -2, -1))
	if mask, given := args[3].(tensor); given {
		if mask.DType().IsFloat() {
			scores = r.add(scores, mask)
		} else {
			scores = r.call("aten::masked_fill.Scalar", scores, r.call("aten::logical_not", mask), math.Inf(-1))
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if on, is := args[min(causal, len(args)-1)].(bool); causal < len(args) && is && on {
		n := scores.Shape()
		ones := r.call("aten::ones", n[len(n)-2:])
		above := r.call("aten::triu", ones, 1)
		scores = r.call("aten::masked_fill.Scalar", scores, r.call("aten::gt.Scalar", above, 0.0), math.Inf(-1))
	}
	weights := r.call("aten::softmax.int", scores, -1)
	if r.err != nil {
		return nil, r.err
	}
	dropped := r.mul(weights, r.spreadMask(uint64(c.Site), weights, weights.Shape(), c.Spread, p))
	return []tensor{r.call("aten::matmul", dropped, v), weights}, r.err
}
