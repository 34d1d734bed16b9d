package fuse

import (
	"testing"

	"github.com/millrace-ml/millrace/model/aten"
	"github.com/millrace-ml/millrace/model/aten/rules"
)

// FuzzApply makes networks of the operators that fusing examines, with any arguments. Fusing must not panic. Afterwards
// each node must read only results of earlier nodes.
func FuzzApply(f *testing.F) {
	ops := []string{"linear", "addmm", "matmul", "bmm", "baddbmm", "t", "transpose.int", "_convolution", "conv2d", "gelu",
		"layer_norm", "embedding", "add.Tensor", "mul.Tensor", "masked_fill.Scalar", "where.self", "softmax.int", "dropout",
		"scaled_dot_product_attention", "lstm.input", "zeros", "ones", "triu", "tril", "slice.Tensor", "view", "reshape",
		"contiguous", "max_pool2d", "eq.Scalar", "arange", "expand", "permute", "select.int", "sum", "narrow"}
	f.Add([]byte{0, 2, 9, 1, 0, 1, 17, 4, 8, 34, 1, 6})
	f.Add([]byte("any operator reads what there is, or what there is not"))
	shapes := [][]int64{{3, 4}, {3, 4, 4}, {3, 2, 4, 2}, {4, 4}, {4}, {}, {3, 4, 6, 6}}
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func() int {
			if len(data) == 0 {
				return 0
			}
			c := data[0]
			data = data[1:]
			return int(c)
		}
		g := &aten.Graph{Rows: 3, Inputs: []aten.Input{{Name: "x", Shape: []int64{3, 4, 4}, DType: "F32", Value: 0}},
			Tensors: []aten.Tensor{{Name: "w", Shape: []int64{4, 4}, DType: "F32", Trained: true},
				{Name: "b", Shape: []int64{4}, DType: "F32", Trained: true},
				{Name: "k", Shape: []int64{2, 4, 3, 3}, DType: "F32", Trained: true},
				{Name: "c", Shape: []int64{4, 4}, DType: "F32", Role: aten.Buffer}}}
		var arg func(depth int) aten.Arg
		arg = func(depth int) aten.Arg {
			switch k := next(); k % 8 {
			case 0:
				return aten.Arg{}
			case 1, 2:
				return aten.Arg{Kind: aten.FromTensor, Tensor: g.Tensors[k/8%4].Name}
			case 3:
				return aten.Arg{Kind: aten.Int, Int: int64(k/8) - 4}
			case 4:
				return aten.Arg{Kind: aten.Float, Float: float64(100-k) * 1e3}
			case 5:
				return aten.Arg{Kind: aten.Bool, Bool: k > 100}
			case 6:
				l := aten.Arg{Kind: aten.List}
				for range k / 8 % 5 {
					if depth < 2 {
						l.List = append(l.List, arg(depth+1))
					}
				}
				return l
			}
			return aten.Arg{Kind: aten.FromValue, Value: max(0, len(g.Nodes)-next()%4)}
		}
		for len(data) > 0 && len(g.Nodes) < 40 {
			n := aten.Node{Op: "aten::" + ops[next()%len(ops)]}
			for range 1 + next()%6 {
				n.In = append(n.In, arg(0))
			}
			n.Out = []aten.Value{{ID: len(g.Nodes) + 1, Type: "Tensor", Shape: shapes[next()%len(shapes)], DType: "F32"}}
			g.Nodes = append(g.Nodes, n)
		}
		g.Outputs = []aten.Output{{Name: "loss", Arg: aten.Arg{Kind: aten.FromValue, Value: len(g.Nodes)}}}
		n, err := rules.Normalise(g)
		if err != nil {
			return
		}
		Apply(n, nil)
		made := map[int]bool{0: true}
		var read func(args []rules.Arg)
		read = func(args []rules.Arg) {
			for _, a := range args {
				if a.Kind == rules.FromValue && !made[a.Value] {
					t.Fatalf("value %d is read in front of its maker", a.Value)
				}
				read(a.List)
			}
		}
		for _, node := range n.Nodes {
			read(node.In)
			for _, v := range node.Out {
				made[v] = true
				if n.Values[v] == nil {
					t.Fatalf("nothing is known of value %d", v)
				}
			}
		}
	})
}
