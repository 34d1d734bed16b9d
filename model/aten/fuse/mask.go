package fuse

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"strings"

	"github.com/millrace-ml/millrace/model/aten"
	"github.com/millrace-ml/millrace/model/aten/rules"
)

// largest is the largest number of elements of a mask that is examined.
const largest = 1 << 24

// mostElements limits the mask elements that are computed for a network, so that no file takes too long to read.
const mostElements = 1 << 30

// deepest limits the chain of operators that compute a mask.
const deepest = 40

// array holds the elements of a tensor that depends on no input.
type array struct {
	shape []int64
	data  []float32
}

// masks computes masks of attention that depend on no input.
type masks struct {
	*graph
	elements map[string]*io.SectionReader // elements of the network's tensors
	known    map[int]*array               // values computed so far for the current mask
	budget   int64                        // how many more elements may be computed
}

func count(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		if d < 0 || d > largest || n > largest {
			return largest + 1
		}
		n *= d
	}
	return n
}

func newArray(shape []int64) *array {
	n := count(shape)
	if n > largest {
		return nil
	}
	return &array{shape, make([]float32, n)}
}

// each makes an array by applying a function to each element.
func (a *array) each(of func(x float32) float32) *array {
	b := &array{a.shape, make([]float32, len(a.data))}
	for i, x := range a.data {
		b.data[i] = of(x)
	}
	return b
}

// indexed makes an array of a shape, and computes each element from its indices.
func indexed(shape []int64, of func(at []int64) float32) *array {
	a := newArray(shape)
	if a == nil {
		return nil
	}
	at := make([]int64, len(shape))
	for i := range a.data {
		a.data[i] = of(at)
		for d := len(at) - 1; d >= 0; d-- {
			if at[d]++; at[d] < shape[d] {
				break
			}
			at[d] = 0
		}
	}
	return a
}

// element returns the element of the array at an index of a larger shape, to which the array is broadcast.
func (a *array) element(at []int64) float32 {
	place, front := int64(0), len(at)-len(a.shape)
	if front < 0 {
		return float32(math.NaN())
	}
	for d, n := range a.shape {
		place *= n
		if n > 1 {
			place += at[front+d]
		}
	}
	if place < 0 || place >= int64(len(a.data)) {
		return float32(math.NaN()) // the graph's shapes do not fit its operators
	}
	return a.data[place]
}

// constant computes an argument that depends only on constants and buffers. It returns nil if the argument depends on
// anything else, has too many elements, or needs an operator that constant does not support.
func (m *masks) constant(a rules.Arg) *array { return m.deep(a, 0) }

func (m *masks) deep(a rules.Arg, depth int) *array {
	if x, ok := fixed(a); ok {
		return &array{nil, []float32{float32(x)}}
	}
	switch a.Kind {
	case rules.FromTensor:
		return m.buffer(m.tensors[a.Tensor])
	case rules.FromValue:
		if known, ok := m.known[a.Value]; ok || depth > deepest {
			return known
		}
		n := m.makes(a)
		shape, ok := m.at(a.Value, m.net.Graph.Rows)
		x := m.net.Values[a.Value]
		if n == nil || !ok || x.Batch || x.Grad || len(n.In) == 0 || len(n.Out) != 1 || !m.affords(count(shape)) {
			return nil
		}
		m.known[a.Value] = m.computed(n, shape, depth+1)
		return m.known[a.Value]
	}
	return nil
}

// affords says whether n more elements may be computed. If so, it subtracts them from the budget.
func (m *masks) affords(n int64) bool {
	if n > largest || n > m.budget {
		return false
	}
	m.budget -= n
	return true
}

// buffer reads a tensor that is not trained and that no node writes.
func (m *masks) buffer(t *aten.Tensor) *array {
	r := m.elements[t.Name]
	size := map[aten.DType]int64{"F32": 4, "F64": 8, "I64": 8, "I32": 4, "BOOL": 1, "U8": 1}[t.DType]
	if !m.affords(count(t.Shape)) || t.Trained || m.writes(t.Name) || r == nil || size == 0 ||
		r.Size() != size*count(t.Shape) {
		return nil
	}
	a := newArray(t.Shape)
	from := bufio.NewReader(io.NewSectionReader(r, 0, r.Size()))
	one := make([]byte, size)
	for i := range a.data {
		if _, err := io.ReadFull(from, one); err != nil {
			return nil // the error will be reported where parameters are made
		}
		switch t.DType {
		case "F32":
			a.data[i] = math.Float32frombits(binary.LittleEndian.Uint32(one))
		case "F64":
			a.data[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(one)))
		case "I64":
			a.data[i] = float32(int64(binary.LittleEndian.Uint64(one)))
		case "I32":
			a.data[i] = float32(int32(binary.LittleEndian.Uint32(one)))
		default:
			a.data[i] = float32(one[0])
		}
	}
	return a
}

func (g *graph) writes(tensor string) bool {
	for _, n := range g.net.Nodes {
		for _, b := range n.Updates {
			if b == tensor {
				return true
			}
		}
	}
	return false
}

func (m *masks) computed(n *rules.Node, shape []int64, depth int) *array {
	b := base(n.Op)
	switch b {
	case "ones", "new_ones", "ones_like":
		return indexed(shape, func([]int64) float32 { return 1 })
	case "zeros", "new_zeros", "zeros_like":
		return newArray(shape)
	case "full", "full_like":
		if x, ok := fixed(optional(n.In, 1)); ok {
			return indexed(shape, func([]int64) float32 { return float32(x) })
		}
		return nil
	case "arange":
		return m.counted(n, shape)
	}
	x := m.deep(n.In[0], depth)
	if x == nil {
		return nil
	}
	switch b {
	case "triu", "tril":
		d, rank := number(n.In, 1, 0), len(shape)
		if rank < 2 || d == none {
			return nil
		}
		return indexed(shape, func(at []int64) float32 {
			if above := float64(at[rank-1] - at[rank-2]); b == "triu" && above >= d || b == "tril" && above <= d {
				return x.element(at)
			}
			return 0
		})
	case "slice":
		return sliced(n.In, x, shape)
	case "logical_not", "bitwise_not":
		if b == "bitwise_not" && m.net.Values[n.Out[0]].DType != "BOOL" {
			return nil
		}
		return x.each(func(x float32) float32 { return truth(x == 0) })
	case "to", "contiguous", "clone", "alias", "detach", "bool", "float":
		return x.as(m.net.Values[n.Out[0]].DType)
	case "view", "reshape", "unsqueeze", "squeeze", "_unsafe_view", "flatten":
		if count(shape) != int64(len(x.data)) {
			return nil
		}
		return &array{shape, x.data}
	case "expand", "expand_as", "broadcast_to":
		return indexed(shape, x.element)
	case "transpose", "t":
		return m.turnedArray(n, x, shape)
	}
	return m.combined(b, n, x, shape, depth)
}

// counted computes the result of arange. The operator's overload says what the first arguments are.
func (m *masks) counted(n *rules.Node, shape []int64) *array {
	from, step := 0.0, 1.0
	_, overload, _ := strings.Cut(n.Op, ".")
	if strings.HasPrefix(overload, "start") {
		from = number(n.In, 0, none)
	}
	if overload == "start_step" {
		step = number(n.In, 2, 1)
	}
	if from == none || step == none || len(shape) != 1 {
		return nil
	}
	return indexed(shape, func(at []int64) float32 { return float32(from + step*float64(at[0])) })
}

// as converts an array to another element type, or returns nil if that type is not supported.
func (a *array) as(of aten.DType) *array {
	switch of {
	case "F32", "F64":
		return a
	case "I64", "I32":
		return a.each(func(x float32) float32 { return float32(math.Trunc(float64(x))) })
	case "BOOL":
		return a.each(func(x float32) float32 { return truth(x != 0) })
	}
	return nil
}

func (m *masks) turnedArray(n *rules.Node, x *array, shape []int64) *array {
	a, b := 0, 1
	if base(n.Op) == "transpose" {
		a, b = place(int(number(n.In, 1, none)), len(shape)), place(int(number(n.In, 2, none)), len(shape))
	}
	if len(shape) < 2 || a < 0 || b < 0 {
		return nil
	}
	from := make([]int64, len(shape))
	return indexed(shape, func(at []int64) float32 {
		copy(from, at)
		from[a], from[b] = at[b], at[a]
		return x.element(from)
	})
}

func sliced(in []rules.Arg, x *array, shape []int64) *array {
	d, from, step := place(int(number(in, 1, 0)), len(shape)), int64(number(in, 2, 0)), int64(number(in, 4, 1))
	if d < 0 || from < 0 || step < 1 || len(x.shape) != len(shape) || from+(shape[d]-1)*step >= x.shape[d] {
		return nil
	}
	to := make([]int64, len(shape))
	return indexed(shape, func(at []int64) float32 {
		copy(to, at)
		if to[d] = from + at[d]*step; x.shape[d] == 1 {
			to[d] = 0
		}
		return x.element(to)
	})
}

// combined computes an operator of two or three tensors.
func (m *masks) combined(b string, n *rules.Node, x *array, shape []int64, depth int) *array {
	by := b == "add" || b == "sub" || b == "rsub"
	if len(n.In) < 2 || by && number(n.In, 2, 1) != 1 || b == "div" && len(n.In) > 2 {
		return nil
	}
	y := m.deep(n.In[1], depth)
	if y == nil {
		return nil
	}
	if b == "where" || b == "masked_fill" {
		if len(n.In) < 3 {
			return nil
		}
		z := m.deep(n.In[2], depth)
		if z == nil {
			return nil
		}
		when, yes, no := y, z, x
		if b == "where" {
			when, yes, no = x, y, z
		}
		return indexed(shape, func(at []int64) float32 {
			if when.element(at) != 0 {
				return yes.element(at)
			}
			return no.element(at)
		})
	}
	of, ok := pairs[b]
	as := m.net.Values[n.Out[0]].DType
	if !ok || strings.HasPrefix(b, "__") && as != "BOOL" {
		return nil
	}
	both := indexed(shape, func(at []int64) float32 { return of(x.element(at), y.element(at)) })
	if both == nil {
		return nil
	}
	return both.as(as)
}

var pairs = map[string]func(x, y float32) float32{
	"add": func(x, y float32) float32 { return x + y }, "sub": func(x, y float32) float32 { return x - y },
	"rsub": func(x, y float32) float32 { return y - x }, "mul": func(x, y float32) float32 { return x * y },
	"div": func(x, y float32) float32 { return x / y },
	"eq":  func(x, y float32) float32 { return truth(x == y) }, "ne": func(x, y float32) float32 { return truth(x != y) },
	"lt": func(x, y float32) float32 { return truth(x < y) }, "le": func(x, y float32) float32 { return truth(x <= y) },
	"gt": func(x, y float32) float32 { return truth(x > y) }, "ge": func(x, y float32) float32 { return truth(x >= y) },
	"logical_or":  func(x, y float32) float32 { return truth(x != 0 || y != 0) },
	"logical_and": func(x, y float32) float32 { return truth(x != 0 && y != 0) },
	"__or__":      func(x, y float32) float32 { return truth(x != 0 || y != 0) },
	"__and__":     func(x, y float32) float32 { return truth(x != 0 && y != 0) },
}

func truth(is bool) float32 {
	if is {
		return 1
	}
	return 0
}
