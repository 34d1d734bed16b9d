package fuse

import (
	"fmt"

	"github.com/millrace-ml/millrace/model/aten/rules"
)

// candidate is a possible replacement of a node by millrace's operator, with the tensors that the operator would read.
type candidate struct {
	op    string
	in    []rules.Arg
	holds []string
}

// weights fuses operators with weights: linear layers, convolutions, layer norms, embeddings.
func (f *fuser) weights() {
	found := map[int]*candidate{}
	for i := range f.net.Nodes {
		node := &f.net.Nodes[i]
		c, reason := f.candidate(node)
		if reason != "" {
			f.leave(node, "%s", reason)
		} else if c != nil {
			found[i] = c
		}
	}
	f.unshared(found)
	for i, c := range found {
		f.net.Nodes[i].Op, f.net.Nodes[i].In = own+c.op, c.in
	}
}

// unshared drops each candidate that reads a trained tensor which a node outside the candidates also reads. From then
// on, the dropped node is outside the candidates too. So unshared repeats this until it drops nothing more.
func (f *fuser) unshared(found map[int]*candidate) {
	for again := true; again; {
		again = false
		held := map[string]int{}
		for _, c := range found {
			for _, t := range c.holds {
				held[t]++
			}
		}
		for i, c := range found {
			for _, t := range c.holds {
				// g.reads includes the node that transposes a matrix.
				if f.tensors[t].Trained && held[t] != f.reads[t] {
					f.leave(&f.net.Nodes[i], "another operator reads %s too", t)
					delete(found, i)
					again = true
					break
				}
			}
		}
	}
}

// candidate returns a replacement for a node, or the reason why there is none. For a node that is no linear layer,
// convolution, layer norm or embedding, it returns neither.
func (f *fuser) candidate(n *rules.Node) (*candidate, string) {
	in := n.In
	if len(in) < 2 {
		return nil, ""
	}
	switch base(n.Op) {
	case "linear":
		w, b := f.tensor(in, 1, 2), f.tensor(in, 2, 1)
		if w == nil || !absent(in, 2) && (b == nil || b.Shape[0] != w.Shape[0]) {
			return nil, "its weight or its bias is computed"
		}
		return f.linear(in[0], in[1], optional(in, 2)), ""
	case "mm", "matmul":
		if w := f.turned(in, 1); w != nil {
			return f.linear(in[0], *w, rules.Arg{}), ""
		}
	case "addmm":
		return f.addmm(n)
	case "convolution", "_convolution", "conv2d":
		return f.convolution(n)
	case "layer_norm":
		w, b := f.tensor(in, 2, 1), f.tensor(in, 3, 1)
		if w == nil || b == nil {
			return nil, "it is without gain and shift, or over several dimensions, or they are computed"
		}
		return &candidate{"layer_norm", []rules.Arg{in[0], in[2], in[3], float(number(in, 4, 1e-5))},
			[]string{w.Name, b.Name}}, ""
	case "embedding":
		return f.embedding(in)
	}
	return nil, ""
}

func (f *fuser) linear(x, w, b rules.Arg) *candidate {
	holds := []string{w.Tensor}
	if b.Kind == rules.FromTensor {
		holds = append(holds, b.Tensor)
	}
	return &candidate{"linear", []rules.Arg{x, w, b}, holds}
}

// turned returns the module's matrix whose transpose is argument i; nil if there is none.
func (g *graph) turned(in []rules.Arg, i int) *rules.Arg {
	if i >= len(in) {
		return nil
	}
	n := g.made(in[i])
	if n == nil || len(n.In) == 0 || g.tensor(n.In, 0, 2) == nil {
		return nil
	}
	switch base(n.Op) {
	case "t", "numpy_T", "mT":
		return &n.In[0]
	case "transpose", "swapaxes", "swapdims":
		if place(int(number(n.In, 1, none)), 2)+place(int(number(n.In, 2, none)), 2) == 1 {
			return &n.In[0]
		}
	}
	return nil
}

func (f *fuser) addmm(n *rules.Node) (*candidate, string) {
	in := n.In
	w := f.turned(in, 2)
	if w == nil {
		if f.tensor(in, 2, 2) != nil {
			return nil, "its weight is [in, out]; that of a linear layer is [out, in]"
		}
		return nil, ""
	}
	b := f.tensor(in, 0, 1)
	if b == nil || b.Shape[0] != f.tensors[w.Tensor].Shape[0] || number(in, 3, 1) != 1 || number(in, 4, 1) != 1 {
		return nil, "what it adds is no bias, or has a factor"
	}
	return f.linear(in[1], *w, in[0]), ""
}

// convolution accepts two-dimensional convolutions. The number of groups is argument 6 of conv2d. For the other
// operators it is argument 8, and argument 6 says whether the convolution is transposed.
func (f *fuser) convolution(n *rules.Node) (*candidate, string) {
	in := n.In
	groups := 6
	if base(n.Op) != "conv2d" {
		groups = 8
		if number(in, 6, 0) != 0 {
			return nil, "it is transposed"
		}
	}
	w := f.tensor(in, 1, 4)
	if w == nil || !absent(in, 2) && f.tensor(in, 2, 1) == nil {
		return nil, "its weight is computed, or not for two dimensions"
	}
	if len(f.shape(in[0])) != 4 {
		return nil, "its input is no batch of images"
	}
	c := &candidate{op: "conv2d", in: []rules.Arg{in[0], in[1], optional(in, 2)}, holds: []string{w.Name}}
	if !absent(in, 2) {
		c.holds = append(c.holds, in[2].Tensor)
	}
	for i, otherwise := range []int64{1, 0, 1} { // stride, padding, dilation
		one := []int64{otherwise}
		if len(in) > 3+i {
			var ok bool
			if one, ok = numbers(in, 3+i); !ok || len(one) < 1 || len(one) > 2 {
				return nil, "its stride, padding or dilation is no pair of numbers"
			}
		}
		c.in = append(c.in, list(integer(one[0]), integer(one[len(one)-1])))
	}
	g := number(in, groups, 1)
	if g < 1 {
		return nil, "its groups are no number"
	}
	c.in = append(c.in, integer(int64(g)))
	return c, ""
}

func (f *fuser) embedding(in []rules.Arg) (*candidate, string) {
	table := f.tensor(in, 0, 2)
	switch {
	case table == nil:
		return nil, "its table is computed"
	case number(in, 3, 0) != 0:
		return nil, "its gradient is scaled by how often words occur"
	case number(in, 4, 0) != 0:
		return nil, "its gradient is sparse"
	}
	padding := number(in, 2, -1)
	if padding < -1 || padding >= float64(table.Shape[0]) {
		return nil, fmt.Sprintf("its padding is %v of %d words", padding, table.Shape[0])
	}
	return &candidate{"embedding", []rules.Arg{in[0], in[1], integer(int64(padding))}, []string{table.Name}}, ""
}

// behind fuses operators that follow a linear layer: a bias, GELU, a sum.
func (f *fuser) behind() {
	for i := range f.net.Nodes {
		node := &f.net.Nodes[i]
		if len(node.In) == 0 {
			continue
		}
		switch base(node.Op) {
		case "gelu":
			f.gelu(node)
		case "add":
			if len(node.In) < 2 || number(node.In, 2, 1) != 1 {
				continue
			}
			for _, side := range []int{1, 0} {
				if f.sum(node, node.In[side], node.In[1-side]) {
					break
				}
			}
		}
	}
}

// linearOf returns millrace's linear layer that computes an argument. It returns nil if there is no such layer, or if
// the argument is read more than once.
func (f *fuser) linearOf(a rules.Arg) *rules.Node {
	n := f.made(a)
	if n == nil || n.Op != own+"linear" || f.gone[f.maker[a.Value]] {
		return nil
	}
	return n
}

func (f *fuser) gelu(node *rules.Node) {
	l := f.linearOf(node.In[0])
	switch {
	case l == nil:
		if from := f.makes(node.In[0]); from != nil && from.Op == own+"linear" {
			f.leave(node, "its linear layer is read by others too")
		}
		return
	case word(node.In, 1, "none") != "none":
		f.leave(node, "it is approximated by %s", word(node.In, 1, ""))
		return
	}
	f.gone[f.maker[node.In[0].Value]] = true
	node.Op, node.In, node.Scope = own+"linear_gelu", l.In, l.Scope
}

// sum tries to replace two nodes by one: a linear layer, which makes argument `of`, and the addition of argument
// `with`. It returns whether it did.
func (f *fuser) sum(node *rules.Node, of, with rules.Arg) bool {
	l := f.linearOf(of)
	if l == nil {
		return false
	}
	w := f.tensors[l.In[1].Tensor]
	if with.Kind == rules.FromTensor {
		b := f.tensors[with.Tensor]
		if l.In[2].Kind != rules.None || len(b.Shape) != 1 || b.Shape[0] != w.Shape[0] || b.DType != w.DType ||
			f.reads[b.Name] != 1 {
			return false
		}
		f.gone[f.maker[of.Value]] = true
		node.Op, node.In, node.Scope = l.Op, []rules.Arg{l.In[0], l.In[1], with}, l.Scope
		return true
	}
	if with.Kind != rules.FromValue || with.Value == of.Value {
		return false
	}
	r, y := f.net.Values[with.Value], f.net.Values[of.Value]
	if r.DType != y.DType || !alike(r.Dims, y.Dims) {
		return false
	}
	f.gone[f.maker[of.Value]] = true
	node.Op, node.In = own+"linear_add", append([]rules.Arg{with}, l.In...)
	return true
}

// alike says whether sizes are known to be equal for any number of rows.
func alike(a, b []*rules.Expr) bool {
	if a == nil || len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] == nil || b[i] == nil || a[i].String() != b[i].String() {
			return false
		}
	}
	return true
}

// pools fuses max pooling with square windows that do not overlap.
func (f *fuser) pools() {
	for i := range f.net.Nodes {
		node := &f.net.Nodes[i]
		if base(node.Op) != "max_pool2d" || len(node.In) < 2 || len(f.shape(node.In[0])) != 4 {
			continue
		}
		size, ok := numbers(node.In, 1)
		if !ok || len(size) == 0 || size[0] != size[len(size)-1] || !sideBySide(node.In, size[0]) {
			f.leave(node, "its windows are not squares side by side")
			continue
		}
		node.Op, node.In = own+"max_pool", []rules.Arg{node.In[0], integer(size[0])}
	}
}

func sideBySide(in []rules.Arg, size int64) bool {
	stride := len(in) <= 2 || in[2].Kind == rules.List && len(in[2].List) == 0 || all(in, 2, 2, size)
	return stride && all(in, 3, 2, 0) && all(in, 4, 2, 1) && number(in, 5, 0) == 0
}
