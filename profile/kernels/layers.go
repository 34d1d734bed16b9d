package kernels

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
)

// unaligned is the fraction of its rate that a product in 16 bits reaches if its second matrix is unaligned. A matrix
// is unaligned if one of its sides is no multiple of 8. Tensor cores load 8 numbers of 16 bits at once (NVIDIA, Matrix
// Multiplication Background, section 4.1). The head is a third of GPT-2's work. Padding the vocabulary from 50257 to
// 50304 makes training about a quarter faster (Karpathy, nanoGPT, 2023).
const unaligned = 0.45

func whole8(n float64) bool { return math.Mod(n, 8) == 0 }

// product adds the product of n x k by k x m and its two gradients.
func (w *work) product(d *device, n, k, m float64) {
	one := kernel{rate: cluster.RateMatmul, flops: 2 * n * k * m, width: min(k, m), rows: n,
		bytes: d.e * (n*k + k*m + n*m), launches: 1}
	if d.e == 2 && (!whole8(k) || !whole8(m)) {
		one.flops /= unaligned
	}
	if d.o.Precision == "fp8" { // each operand is read for its scale, then read again and narrowed
		one.rate = cluster.RateFP8
		narrow := kernel{rate: cluster.RateMemory, bytes: 5 * (n*k + k*m), launches: 2}
		w.forward = append(w.forward, narrow)
		narrow.bytes = 5 * n * m
		w.input = append(w.input, narrow)
	}
	w.forward, w.input = append(w.forward, one), append(w.input, one)
	if d.e == 2 && !d.k.Fused { // writes this micro-batch's gradient; another kernel adds it to the sum in 32 bits
		w.weight = append(w.weight, kernel{rate: cluster.RateMemory, bytes: (d.e + 8) * k * m, launches: 1})
	} else {
		one.bytes = d.e*(n*k+n*m) + 8*k*m // the product's own kernel adds to the sum
	}
	w.weight = append(w.weight, one)
	w.pending += d.e * n * (k + m)
}

// read returns the bytes that are kept per element of a product's input. In fp8 the narrowed copy is kept (NVIDIA,
// Transformer Engine, module/linear.py).
func (d *device) read() float64 {
	if d.o.Precision == "fp8" {
		return 1
	}
	return d.e
}

// moves adds operators with little computation, given the bytes that they move.
func (w *work) moves(forward, backward, launches float64) {
	w.forward = append(w.forward, kernel{rate: cluster.RateMemory, bytes: forward, launches: launches})
	w.input = append(w.input, kernel{rate: cluster.RateMemory, bytes: backward, launches: launches})
}

func drops(l *model.Layer) bool {
	p, _ := l.Attr["dropout"].(float64)
	return p > 0
}

// norm adds a norm of n rows of c elements.
func (w *work) norm(d *device, n, c float64, rms bool) {
	passes, launches := 2.0, 1.0
	if rms && !d.k.Fused { // widen, square, average, scale, narrow and gain: one kernel each
		passes, launches = 7, 6
	}
	w.moves(passes*d.e*n*c/d.sp, (passes+1)*d.e*n*c/d.sp, launches)
}

// residual adds the dropout, if any, and the sum with the branch's input.
func (w *work) residual(d *device, n, c float64, dropout bool) {
	forward, launches := 3*d.e, 1.0
	backward := 3 * d.e // adds the gradients of branch and trunk
	if dropout {
		forward, backward, launches = forward+1, backward+2*d.e+1, 2
		if !d.k.Fused {
			forward += 2 * d.e
		}
		w.saved += n * c / d.sp // the dropout's mask
	}
	w.moves(forward*n*c/d.sp, backward*n*c/d.sp, launches)
}

// work returns the kernels of a layer for n samples.
func (d *device) work(l *model.Layer, in []model.Tensor, n float64) (w work, err error) {
	switch l.Kind {
	case "attention", "encoder_attention", "rotary_attention", "relative_attention":
		if heads := l.Int("heads"); heads%int(d.t) != 0 {
			return w, fmt.Errorf("it has %d heads, which a group of %d devices does not divide", heads, int(d.t))
		}
		d.attention(&w, l, in[0], n)
	case "mlp", "swiglu":
		d.mlp(&w, l, in[0], n)
	case "embedding":
		d.embedding(&w, l, n)
	case "head":
		d.head(&w, l, in[0], n)
	case "cross_entropy":
		d.loss(&w, in, n)
	default:
		if err := d.divides(l); err != nil {
			return w, err
		}
		d.other(&w, l, in, n)
	}
	return w, nil
}

// divides refuses layers that Megatron's rules do not divide among a group.
func (d *device) divides(l *model.Layer) error {
	alike := []string{"layer_norm", "rms_norm", "dropout", "add", "relu", "gelu", "tanh", "flatten"}
	if d.link == nil || slices.Contains(alike, l.Kind) {
		return nil
	}
	return fmt.Errorf("no division is known of kind %s; groups divide attention, mlp, swiglu, embeddings, heads and "+
		"their loss", l.Kind)
}

// attention adds the norm, queries, keys and values, the scores, the output and its residual.
func (d *device) attention(w *work, l *model.Layer, in model.Tensor, samples float64) {
	s, c := float64(in.Shape[0]), float64(in.Shape[1])
	n, heads := samples*s, float64(l.Int("heads"))
	kv, dropout, rotary := c, drops(l), l.Kind == "rotary_attention"
	if rotary {
		kv = c / heads * float64(l.Int("kv_heads"))
	}
	w.norm(d, n, c, rotary)
	w.product(d, n, c, (c+2*kv)/d.t)
	if rotary { // queries and keys are rotated in separate kernels
		passes, launches := 2.0, 1.0
		if !d.k.Fused {
			passes, launches = 8, 6
		}
		w.moves(passes*d.e*n*(c+kv)/d.t, passes*d.e*n*(c+kv)/d.t, launches)
	}
	d.scores(w, l, n, s, c/d.t, heads/d.t, dropout)
	w.product(d, n, c/d.t, c)
	w.residual(d, n, c, dropout)
	w.forwardSum, w.inputSum = n*c*d.e, n*c*d.e
	w.saved += (d.e+d.read())*n*c/d.sp + n*(d.e*(c+2*kv)+d.read()*c)/d.t
	if d.k.Flash && d.read() < d.e { // attention's output is kept in 16 bits, for its own backward
		w.saved += d.e * n * c / d.t
	}
	if rotary && !d.k.Fused {
		w.saved += d.e * n * (c + kv) / d.t
	}
}

// scores adds q k^T, its softmax, and the product with v, for heads with a total width of c.
func (d *device) scores(w *work, l *model.Layer, n, s, c, heads float64, dropout bool) {
	flops := 4 * n * s * c
	core := kernel{rate: cluster.RateAttention, flops: flops, width: c / heads, rows: s, launches: 1}
	back := core
	if d.k.Flash {
		if l.Kind != "encoder_attention" {
			core.flops /= 2
		}
		back.flops = 2.5 * core.flops
		core.bytes, back.bytes = 4*d.e*n*c, 8*d.e*n*c
		w.saved += 4 * heads * n
	} else {
		elements, forward, backward := heads*s*n, 4*d.e, 6*d.e
		if w.scores = d.e * elements; dropout {
			forward, backward = forward+2*d.e+1, backward+3*d.e+1
			w.scores += (d.e + 1) * elements
		}
		if !d.k.Fused { // scale and mask are separate kernels
			forward, backward, core.launches, back.launches = forward+4*d.e, backward+2*d.e, 6, 8
		}
		if !d.o.Selective {
			w.saved += w.scores
		}
		back.flops = 2 * flops
		// The two products are limited by arithmetic or by reading and writing scores. The softmax and the dropout are
		// limited only by reading and writing scores.
		scores := kernel{rate: cluster.RateMemory, bytes: (forward - 2*d.e) * elements, launches: core.launches}
		w.forward, w.core = append(w.forward, scores), append(w.core, scores)
		core.bytes = 2*d.e*elements + 4*d.e*n*c
		scores.bytes, scores.launches = (backward-4*d.e)*elements, back.launches
		w.input = append(w.input, scores)
		back.bytes = 4*d.e*elements + 8*d.e*n*c
	}
	w.forward, w.input = append(w.forward, core), append(w.input, back)
	w.core = append(w.core, core)
}

// mlp adds the norm, the products up and down with an activation between them, and the residual.
func (d *device) mlp(w *work, l *model.Layer, in model.Tensor, samples float64) {
	n, c := samples*float64(in.Shape[0]), float64(in.Shape[1])
	gated := l.Kind == "swiglu"
	dropout := drops(l)
	var h float64
	if gated {
		h = float64(l.Int("hidden"))
	} else {
		h = c * float64(l.Int("expand"))
	}
	w.norm(d, n, c, gated)
	if gated {
		w.product(d, n, c, h/d.t)
		w.product(d, n, c, h/d.t)
		forward, backward, kept := 3.0, 5.0, 3.0
		if !d.k.Fused {
			forward, backward, kept = 5, 8, 4
		}
		w.moves(forward*d.e*n*h/d.t, backward*d.e*n*h/d.t, forward-2)
		w.saved += ((kept-1)*d.e + d.read()) * n * h / d.t
	} else {
		w.product(d, n, c, h/d.t)
		w.moves(2*d.e*n*h/d.t, 3*d.e*n*h/d.t, 1)
		w.saved += (d.e + d.read()) * n * h / d.t
	}
	w.product(d, n, h/d.t, c)
	w.residual(d, n, c, dropout)
	w.forwardSum, w.inputSum = n*c*d.e, n*c*d.e
	w.saved += (d.e + d.read()) * n * c / d.sp
}

// embedding adds a forward that reads rows of a table, and a backward that adds to the rows' gradients.
func (d *device) embedding(w *work, l *model.Layer, samples float64) {
	n, c := samples*float64(l.Outputs[0].Shape[0]), float64(l.Outputs[0].Shape[1])
	passes := 2.0
	if l.Flag("positions") {
		passes += 3
	}
	w.forward = []kernel{{rate: cluster.RateMemory, bytes: passes * d.e * n * c, launches: 2}}
	// The gradient is dense: rows without a token have zeros. It is written, and then added to the existing gradient.
	table := float64(l.Int("vocabulary")) * c / d.t
	w.weight = []kernel{{rate: cluster.RateMemory, bytes: 3*d.e*n*c + 3*4*table, launches: 3}}
	w.forwardSum = n * c * d.e
	if w.saved = 0; drops(l) {
		w.saved = n * c / d.sp
	}
	w.saved += d.e * n * c / d.sp // the input of the first block's norm
}

// head adds the last norm and the logits.
func (d *device) head(w *work, l *model.Layer, in model.Tensor, samples float64) {
	n, c := samples*float64(in.Shape[0]), float64(in.Shape[1])
	v := float64(l.Int("vocabulary"))
	if l.Flag("norm") {
		w.norm(d, n, c, false)
		w.saved += d.e * n * c / d.sp
	}
	w.product(d, n, c, v/d.t)
	w.inputSum = n * c * d.e // not in saved: logits, which the loss saves, widened
}

// loss adds a cross entropy over logits, which it widens to float32. For each row a group sums the maximum, the sum
// of exponentials and the target's logit.
func (d *device) loss(w *work, in []model.Tensor, samples float64) {
	all := samples * float64(in[0].Elements())
	rows := all / float64(in[0].Shape[len(in[0].Shape)-1])
	each := all / d.t
	forward, launches := d.e+4, 2.0 // logits are widened, then read for the rows' maxima and sums
	if forward += 3 * 4; d.k.Fused {
		forward = d.e + 4 + 4
	} else {
		launches = 4
	}
	w.moves(forward*each, (2*4+d.e)*each, launches)
	w.forwardSum = 3 * 4 * rows
	w.saved = 4 * each
}

// other adds a layer of any other kind. The kernel's width and rows are those of the layer's output. It moves the
// layer's inputs, outputs and parameters. But a layer that has no parameters, or little work for their gradients,
// counts as a kernel that only moves its inputs and outputs.
func (d *device) other(w *work, l *model.Layer, in []model.Tensor, samples float64) {
	moved, out := 0.0, 0.0
	for _, t := range in {
		moved += samples * float64(t.Elements())
	}
	for _, t := range l.Outputs {
		out += samples * float64(t.Elements())
	}
	moved += out
	parameters := float64(l.ParameterElements())
	shape := []int{1}
	if len(l.Outputs) > 0 && len(l.Outputs[0].Shape) > 0 {
		shape = l.Outputs[0].Shape
	}
	width := float64(shape[len(shape)-1])
	launches := 1.0
	switch l.Kind {
	case "conv2d":
		width = float64(shape[0])
	case "lstm": // one product and its gates for each position
		launches = 2 * float64(shape[0])
	}
	rows := max(1, out/width/max(1, launches/2))
	w.saved = samples * float64(l.SavedBytes) / 4 * d.e
	if parameters == 0 || l.WeightFLOPs < 2*l.ForwardFLOPs/10 {
		w.moves(d.e*moved/d.sp, 1.5*d.e*moved/d.sp, 1)
		w.saved /= d.sp
		return
	}
	one := kernel{rate: cluster.RateMatmul, width: width, rows: rows, bytes: d.e * (moved + parameters),
		launches: launches}
	for _, pass := range []struct {
		flops int64
		to    *[]kernel
	}{{l.ForwardFLOPs, &w.forward}, {l.InputFLOPs, &w.input}, {l.WeightFLOPs, &w.weight}} {
		one.flops = samples * float64(pass.flops)
		*pass.to = append(*pass.to, one)
	}
	if l.Kind == "conv2d" { // batch norm and activation pass over the output again
		passes := 0.0
		if l.Word("activation") != "none" {
			passes += 2
		}
		if l.Flag("batch_norm") {
			passes += 3
		}
		w.moves(passes*d.e*out, 1.5*passes*d.e*out, passes/2)
	}
}
