package rules

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model/aten"
)

// TestFLOPsAreThoseOfAPencil compares the operations of heavy operators with counts by hand. The tensors have 2 rows;
// the counts are for one row. A multiplication with its addition counts as two operations.
func TestFLOPsAreThoseOfAPencil(t *testing.T) {
	word := func(s string) Arg { return Arg{Kind: Literal, Literal: word(s)} }
	for _, c := range []struct {
		op     string
		own    bool      // one of millrace's operators
		shapes [][]int64 // shapes of its tensors; a tensor whose first size is 2 is a value, any other is a parameter
		out    []int64
		in     func(of []Arg) []Arg // builds the arguments from the tensors; nil: the tensors are the arguments
		want   [3]int64             // forward, gradients of inputs, gradients of weights
	}{
		{op: "linear", shapes: [][]int64{{2, 7, 3}, {5, 3}}, out: []int64{2, 7, 5}, want: [3]int64{210, 210, 210}},
		{op: "addmm", shapes: [][]int64{{5}, {2, 3}, {3, 5}}, out: []int64{2, 5}, want: [3]int64{30, 30, 30}},
		// A product has 3 by 5 results, each of 4 multiply-adds.
		{op: "bmm", shapes: [][]int64{{2, 3, 4}, {2, 4, 5}}, out: []int64{2, 3, 5}, want: [3]int64{120, 240, 0}},
		{op: "einsum", shapes: [][]int64{{2, 4, 6}, {4, 9}}, out: []int64{2, 9, 6},
			in:   func(of []Arg) []Arg { return []Arg{word("bpc, pq -> bqc"), {Kind: List, List: of}} },
			want: [3]int64{432, 432, 432}}, // 2 operations x 4 x 6 x 9 combinations of labels
		{op: "conv2d", shapes: [][]int64{{2, 4, 8, 8}, {6, 2, 3, 3}}, out: []int64{2, 6, 6, 6}, // two groups
			want: [3]int64{7776, 7776, 7776}}, // 2 x 6 output channels x 36 positions x 2 input channels x 9 kernel elements
		{op: "conv_transpose2d", shapes: [][]int64{{2, 3, 4, 4}, {3, 5, 2, 2}}, out: []int64{2, 5, 8, 8},
			want: [3]int64{1920, 1920, 1920}}, // 2 x 16 input positions x 3 input channels x 5 output channels x 2x2 kernel
		{op: "bilinear", shapes: [][]int64{{2, 3}, {2, 4}, {5, 3, 4}}, out: []int64{2, 5},
			want: [3]int64{120, 240, 120}},
		// Three gates of width 4, from 3 inputs and 4 states, at 5 positions.
		{op: "gru.input", shapes: [][]int64{{2, 5, 3}, {1, 2, 4}, {12, 3}, {12, 4}, {12}, {12}}, out: []int64{2, 5, 4},
			in:   func(of []Arg) []Arg { return []Arg{of[0], of[1], {Kind: List, List: of[2:]}} },
			want: [3]int64{840, 840, 840}},
		{op: "gru_cell", shapes: [][]int64{{2, 3}, {2, 4}, {12, 3}, {12, 4}}, out: []int64{2, 4},
			want: [3]int64{168, 168, 168}},
		// There are four heads of width 8, and 6 positions. For each pair of positions, a head computes a score, and adds a
		// value weighted by the score.
		{op: "scaled_dot_product_attention", shapes: [][]int64{{2, 4, 6, 8}, {2, 4, 6, 8}, {2, 4, 6, 8}},
			out: []int64{2, 4, 6, 8}, want: [3]int64{4608, 9216, 0}},
		// These are millrace's own operators. Their GELUs, sums and biases are not counted, as in PyTorch's separate
		// operators.
		{op: "linear_gelu", own: true, shapes: [][]int64{{2, 7, 3}, {5, 3}, {5}}, out: []int64{2, 7, 5},
			want: [3]int64{210, 210, 210}},
		{op: "linear_add", own: true, shapes: [][]int64{{2, 7, 5}, {2, 7, 3}, {5, 3}, {5}}, out: []int64{2, 7, 5},
			want: [3]int64{210, 210, 210}},
		{op: "conv2d", own: true, shapes: [][]int64{{2, 4, 8, 8}, {6, 2, 3, 3}}, out: []int64{2, 6, 6, 6},
			want: [3]int64{7776, 7776, 7776}},
		{op: "embedding", own: true, shapes: [][]int64{{9, 4}, {2, 5}}, out: []int64{2, 5, 4}, want: [3]int64{0, 0, 20}},
		{op: "layer_norm", own: true, shapes: [][]int64{{2, 5}, {5}, {5}}, out: []int64{2, 5}},
		{op: "lstm", own: true, shapes: [][]int64{{2, 5, 3}, {16, 3}, {16, 4}, {16}}, out: []int64{2, 5, 4},
			want: [3]int64{1120, 1120, 1120}}, // four gates of width 4, from 3 inputs and 4 states, at 5 positions
		// This is the attention of scaled_dot_product_attention above, but with queries, keys and values of width 32 in
		// one tensor. The number of heads does not change the count.
		{op: "causal_attention", own: true, shapes: [][]int64{{2, 6, 96}}, out: []int64{2, 6, 32},
			want: [3]int64{4608, 9216, 0}},
	} {
		n := &Network{Graph: &aten.Graph{Rows: 2}, Values: map[int]*Value{100: {Shape: c.out}}}
		var of []Arg
		for i, s := range c.shapes {
			if s[0] == 2 {
				n.Values[i] = &Value{Shape: s, Batch: true, Grad: true}
				of = append(of, Arg{Kind: FromValue, Value: i})
			} else {
				name := strings.Repeat("w", i+1)
				n.Graph.Tensors = append(n.Graph.Tensors, aten.Tensor{Name: name, Shape: s, Trained: i > 0})
				of = append(of, Arg{Kind: FromTensor, Tensor: name})
			}
		}
		node := &Node{Op: map[bool]string{false: "aten::", true: "millrace::"}[c.own] + c.op, In: of, Out: []int{100}}
		if c.in != nil {
			node.In = c.in(of)
		}
		forward, input, weight := operation{n, node}.flops()
		if got := [3]int64{forward, input, weight}; got != c.want {
			t.Errorf("%s: %v FLOPs, want %v", c.op, got, c.want)
		}
	}
}
