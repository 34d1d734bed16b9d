package rules

import (
	"math"
	"strings"

	"github.com/millrace-ml/millrace/model/aten"
)

// most is the upper limit of each cost of a layer, so that sums of costs fit into 64 bits.
const most = int64(1) << 52

func numel(shape []int64) float64 {
	n := 1.0
	for _, d := range shape {
		n *= float64(d)
	}
	return n
}

func bounded(x float64) int64 { return int64(math.Min(math.Max(x, 0), float64(most))) }

// shape returns the shape of an argument in the example, or nil if it is unknown.
func (n *Network) shape(a Arg) []int64 {
	switch a.Kind {
	case FromValue:
		return n.Values[a.Value].Shape
	case FromTensor:
		for i := range n.Graph.Tensors {
			if n.Graph.Tensors[i].Name == a.Tensor {
				return n.Graph.Tensors[i].Shape
			}
		}
	}
	return nil
}

// operation is a node of a network whose arithmetic is counted.
type operation struct {
	*Network
	*Node
}

// shape returns the shape of an argument, or nil if there is no such argument or its shape is unknown.
func (o operation) shape(argument int) []int64 {
	if argument < len(o.In) {
		return o.Network.shape(o.In[argument])
	}
	return nil
}

// flops returns how many operations a heavy operator takes for one sample: in the forward, in the input half of the
// backward, and in its weight half.
func (o operation) flops() (forward, input, weight int64) {
	if !heavy[base(o.Op)] || len(o.Out) == 0 || len(o.In) == 0 {
		return 0, 0, 0
	}
	sample := func(total float64) int64 { return bounded(total / float64(o.Graph.Rows)) }
	switch base(o.Op) {
	case "embedding", "embedding_bag":
		// The forward only copies rows of the table. The weight gradient adds each element of the result once.
		return 0, 0, sample(numel(o.Values[o.Out[0]].Shape))
	case "lstm", "gru", "rnn_tanh", "rnn_relu":
		f := sample(o.recurrent())
		return f, f, f
	case "gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell":
		f := sample(o.recurrentCell())
		return f, f, f
	case "causal_attention", "scaled_dot_product_attention", "_scaled_dot_product_attention":
		f := sample(o.attention())
		return f, 2 * f, 0
	}
	total, operands := o.product()
	forward = sample(total)
	for _, a := range operands { // the gradient of each operand costs as much as the product
		switch a.Kind {
		case FromValue:
			if v := o.Values[a.Value]; v.Grad && v.Batch {
				input += forward
			} else if v.Grad {
				weight += forward
			}
		case FromTensor:
			for i := range o.Graph.Tensors {
				if t := &o.Graph.Tensors[i]; t.Name == a.Tensor && t.Trained {
					weight += forward
				}
			}
		}
	}
	return forward, input, weight
}

// product counts the operations of an operator that multiplies its operands; 0 if a shape is unknown.
func (o operation) product() (total float64, operands []Arg) {
	out := numel(o.Values[o.Out[0]].Shape)
	operands = o.In[:min(2, len(o.In))]
	switch b := base(o.Op); b {
	case "linear", "linear_gelu", "mm", "bmm", "matmul":
		if x := o.shape(0); len(x) > 0 {
			total = 2 * out * float64(x[len(x)-1])
		}
	case "addmm", "baddbmm", "linear_add":
		if x := o.shape(1); len(x) > 0 {
			total = 2 * out * float64(x[len(x)-1])
		}
		operands = o.In[1:min(3, len(o.In))]
	case "einsum":
		if len(o.In) < 2 || o.In[0].Literal.Kind != aten.Word {
			return 0, nil
		}
		operands = o.In[1].List
		total = o.einsum(o.In[0].Literal.Text, operands)
	case "bilinear":
		operands = o.In[:min(3, len(o.In))]
		if x, w := o.shape(0), o.shape(2); len(x) > 0 && len(w) == 3 {
			total = 2 * numel(w) * numel(x[:len(x)-1])
		}
	default: // convolutions: the weight is [out, in/groups, kernel], or [in, out/groups, kernel] if transposed
		x, w := o.shape(0), o.shape(1)
		if len(w) < 2 || len(x) < 2 {
			return 0, nil
		}
		transposed := strings.HasPrefix(b, "conv_transpose")
		if strings.HasSuffix(b, "convolution") {
			transposed = literalBool(o.In, 6, false)
		}
		total = 2 * out * numel(w[1:])
		if transposed {
			total = 2 * numel(x) * numel(w[1:])
		}
	}
	return total, operands
}

// recurrent counts the operations of the products with weights in a recurrent network. There are two such products for
// each layer and direction.
func (o operation) recurrent() (total float64) {
	x := o.shape(0)
	at := 2
	if overload(o.Op) == "data" {
		at = 3
	}
	if len(x) == 0 || at >= len(o.In) {
		return 0
	}
	weights := o.In[at].List
	if weights == nil { // millrace's own operator, which has one layer
		weights = o.In[1:3]
	}
	for _, p := range weights {
		if s := o.Network.shape(p); len(s) == 2 {
			total += 2 * numel(s) * numel(x[:len(x)-1])
		}
	}
	return total
}

// recurrentCell counts the operations of the products in one step of a recurrent network.
func (o operation) recurrentCell() float64 {
	x := o.shape(0)
	if len(x) != 2 {
		return 0
	}
	return 2 * (numel(o.shape(2)) + numel(o.shape(3))) * float64(x[0])
}

// attention counts the operations that compute the scores of all pairs of positions, and the sums of values that are
// weighted by these scores.
func (o operation) attention() float64 {
	q := o.shape(0)
	if base(o.Op) == "causal_attention" { // its input is [rows, positions, width]; the heads share the width
		if len(q) != 3 {
			return 0
		}
		return 4 * numel(o.Values[o.Out[0]].Shape) * float64(q[1])
	}
	k, v := o.shape(1), o.shape(2)
	if len(q) < 2 || len(k) < 2 || len(v) < 2 {
		return 0
	}
	seen := numel(q[:len(q)-1]) * float64(k[len(k)-2])
	return 2 * seen * float64(q[len(q)-1]+v[len(v)-1])
}

// einsum counts two operations for each combination of labels; 0 for an equation with an ellipsis.
func (o operation) einsum(equation string, operands []Arg) float64 {
	left, _, _ := strings.Cut(strings.ReplaceAll(equation, " ", ""), "->")
	terms := strings.Split(left, ",")
	if len(terms) != len(operands) || len(terms) < 2 {
		return 0
	}
	sizes := map[byte]float64{}
	for i, t := range terms {
		s := o.Network.shape(operands[i])
		if len(s) != len(t) {
			return 0
		}
		for j := range s {
			sizes[t[j]] = math.Max(sizes[t[j]], float64(s[j]))
		}
	}
	total := 2.0
	for _, s := range sizes {
		total *= s
	}
	return total
}

// costs adds up the operations of a layer's nodes and the bytes that they save, for one sample.
func (n *Network) costs(l *Layer) {
	for _, i := range l.Nodes {
		node := &n.Nodes[i]
		f, in, w := operation{n, node}.flops()
		l.ForwardFLOPs = min(most, l.ForwardFLOPs+f)
		l.InputFLOPs = min(most, l.InputFLOPs+in)
		l.WeightFLOPs = min(most, l.WeightFLOPs+w)
		if views[base(node.Op)] {
			continue
		}
		for _, v := range node.Out {
			if x := n.Values[v]; x.Grad && x.Batch {
				l.SavedBytes = min(most, l.SavedBytes+bounded(4*numel(x.Shape)/float64(n.Graph.Rows)))
			}
		}
	}
}
