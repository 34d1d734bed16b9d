package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model/aten"
)

// Layer is the shortest sequence of nodes that a plan can put on a stage.
type Layer struct {
	Name    string   // name of the module that its nodes share, made unique
	Nodes   []int    // indices in the Network, in order; cheap nodes without a gradient are in every layer that reads them
	In      []int    // values from inputs of the graph and from earlier layers
	Out     []Tensor // values that later layers read
	Tensors []Held   // the module's tensors, in the order in which nodes read them
	// ForwardFLOPs, InputFLOPs and WeightFLOPs are the operations for one sample: in the forward, and in the two halves
	// of the backward.
	ForwardFLOPs, InputFLOPs, WeightFLOPs int64
	SavedBytes                            int64 // for one sample, with 4 bytes for a float: an estimate
}

// Tensor is a value that crosses from one layer to others.
type Tensor struct {
	Value int
	Shape []int64 // shape for one sample
	DType aten.DType
}

// Held is a tensor of the module that a layer reads.
type Held struct {
	Name   string // name in the layer: "weight"
	Tensor string // name in the module: "layer1.0.conv1.weight"
	Tied   string // "layer.name" of the first layer that holds it; empty in that layer
}

// few is the largest number of tensors that may cross a cut. At most cuts only one tensor crosses. If more than an
// eighth of all operations lies between two such cuts, there may be further cuts between them, where several tensors
// cross.
const few = 4

// group divides the nodes into layers.
func (n *Network) group() {
	free := n.recomputed()
	owner, cuts := n.uses(free)
	heavyTotal := int64(0)
	flops := make([]int64, len(n.Nodes))
	for i := range n.Nodes {
		f, _, _ := operation{n, &n.Nodes[i]}.flops()
		flops[i] = f
		heavyTotal += f
	}
	chosen, from := []int{}, 0
	inside := func(to int) {
		sum := int64(0)
		for _, f := range flops[from:to] {
			sum += f
		}
		if sum*8 > heavyTotal {
			for c := from + 1; c < to; c++ {
				if cuts[c] > 1 && cuts[c] <= few && n.Nodes[c-1].Scope != n.Nodes[c].Scope {
					chosen = append(chosen, c)
				}
			}
		}
		from = to
	}
	for c := 1; c < len(n.Nodes); c++ {
		if cuts[c] == 1 {
			inside(c)
			chosen = append(chosen, c)
		}
	}
	inside(len(n.Nodes))
	n.layers(n.convert(append(n.reading(chosen, free, owner), len(n.Nodes)), free, owner))
}

// recomputed returns which nodes run again in each layer that reads them. These are cheap nodes without a gradient that
// depend only on inputs, sizes, and tensors that no node updates.
func (n *Network) recomputed() []bool {
	updated := map[string]bool{}
	for _, node := range n.Nodes {
		for _, b := range node.Updates {
			updated[b] = true
		}
	}
	free, pinned := make([]bool, len(n.Nodes)), map[int]bool{}
	for i, node := range n.Nodes {
		ok := node.Mode == nil && len(node.Updates) == 0 && !heavy[base(node.Op)]
		eachTensor(node.In, func(t string) { ok = ok && !updated[t] })
		eachValue(node.In, func(v int) { ok = ok && !pinned[v] })
		for _, v := range node.Out {
			ok = ok && !n.Values[v].Grad && n.Values[v].Known
		}
		free[i] = ok
		if !ok {
			for _, v := range node.Out {
				pinned[v] = true
			}
		}
	}
	return free
}

// uses returns which node makes each value. It also returns how many values would cross a cut before each node. This
// number is 0 where no cut is possible.
func (n *Network) uses(free []bool) (map[int]int, []int) {
	maker, last := map[int]int{}, map[int]int{}
	first, until := map[string]int{}, map[string]int{} // by updated buffer: the first and the last node that use it
	for i, node := range n.Nodes {
		for _, b := range node.Updates {
			first[b] = i
		}
		for _, v := range node.Out {
			maker[v] = i
		}
	}
	held := map[string]bool{}
	for b := range first {
		held[b] = true
		first[b] = len(n.Nodes)
	}
	end := n.lastBusy(free)
	for i, node := range n.Nodes {
		eachTensor(node.In, func(t string) {
			if held[t] {
				first[t], until[t] = min(first[t], i), i
			}
		})
		if !free[i] {
			n.closure(node.In, free, maker, func(v int) { last[v] = max(last[v], i) })
		}
	}
	for _, o := range n.Outputs {
		n.closure([]Arg{o.Arg}, free, maker, func(v int) { last[v] = max(last[v], end) })
	}
	cuts := make([]int, len(n.Nodes)+1)
	blocked, number := make([]bool, len(n.Nodes)+1), make([]bool, len(n.Nodes)+1)
	for v, i := range maker {
		if free[i] {
			continue
		}
		for c := i + 1; c <= last[v]; c++ {
			cuts[c]++
			blocked[c] = blocked[c] || !n.crosses(v)
			number[c] = number[c] || len(n.Values[v].Dims) == 0
		}
	}
	for b := range held {
		for c := first[b] + 1; c <= until[b]; c++ {
			blocked[c] = true
		}
	}
	busy := false
	for c := range cuts {
		// A cut before a recomputed node is moved to the next node that is not recomputed, because nothing new is made
		// in between. There is no cut where only a number crosses, because only the last nodes of a loss follow there.
		if blocked[c] || !busy || c > end || free[c] || number[c] && cuts[c] == 1 {
			cuts[c] = 0
		}
		busy = busy || c < len(n.Nodes) && !free[c]
	}
	n.attach(cuts)
	return maker, cuts
}

// attach puts nodes that only write buffers into one layer with their neighbours, because alone they would be a layer
// without a result. Of the two cuts around such nodes, it keeps the cut that fewer tensors cross.
func (n *Network) attach(cuts []int) {
	at := 0 // where a run of nodes that only write buffers begins
	for c := 1; c < len(n.Nodes); c++ {
		switch {
		case len(n.Nodes[c-1].Out) > 0:
			at = c
		case len(n.Nodes[c].Out) == 0:
			cuts[c] = 0
		case cuts[at] > cuts[c] && cuts[c] > 0:
			cuts[at] = 0
		case cuts[at] > 0:
			cuts[c] = 0
		}
	}
}

func (n *Network) lastBusy(free []bool) int {
	for i := len(free) - 1; i >= 0; i-- {
		if !free[i] {
			return i
		}
	}
	return 0
}

// closure calls f with each value that the arguments `args` need, including the values that recomputed nodes need for
// them. It leaves out the inputs of the graph.
func (n *Network) closure(args []Arg, free []bool, maker map[int]int, f func(int)) {
	seen := map[int]bool{}
	todo := [][]Arg{args}
	for len(todo) > 0 {
		one := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		eachValue(one, func(v int) {
			i, made := maker[v]
			if !made || seen[v] {
				return
			}
			seen[v] = true
			f(v)
			if free[i] {
				todo = append(todo, n.Nodes[i].In)
			}
		})
	}
}

// layers makes the layers that end at the given places.
func (n *Network) layers(ends []int, free []bool, maker map[int]int) {
	of := map[int]int{} // the layer that makes a value
	from := 0
	names := unique{}
	owners := map[string]string{}
	for k, end := range ends {
		need := map[int]bool{}
		wanted := map[int]bool{}
		take := func(args []Arg) {
			n.closure(args, free, maker, func(v int) { wanted[v] = true })
		}
		for i := from; i < end; i++ {
			if !free[i] {
				need[i] = true
				take(n.Nodes[i].In)
			}
		}
		if k == len(ends)-1 {
			for _, o := range n.Outputs {
				take([]Arg{o.Arg})
			}
		}
		for v := range wanted {
			if free[maker[v]] {
				need[maker[v]] = true
			}
		}
		l := Layer{Name: names.take(n.scope(from, end, free))}
		for i := range n.Nodes {
			if need[i] {
				l.Nodes = append(l.Nodes, i)
			}
		}
		local := map[int]bool{}
		read := func(v int) {
			if !local[v] && !slices.Contains(l.In, v) {
				l.In = append(l.In, v)
			}
		}
		for _, i := range l.Nodes {
			eachValue(n.Nodes[i].In, read)
			for _, v := range n.Nodes[i].Out {
				local[v] = true
				if !free[i] {
					of[v] = k
				}
			}
		}
		if k == len(ends)-1 {
			for _, o := range n.Outputs {
				eachValue([]Arg{o.Arg}, read)
			}
		}
		for _, v := range l.In {
			if at, made := of[v]; made {
				n.Layers[at].yields(n, v)
			}
		}
		n.hold(&l, owners)
		n.costs(&l)
		n.Layers = append(n.Layers, l)
		from = end
	}
}

func (l *Layer) yields(n *Network, v int) {
	if slices.ContainsFunc(l.Out, func(t Tensor) bool { return t.Value == v }) {
		return
	}
	l.Out = append(l.Out, Tensor{v, n.Values[v].sample(), n.Values[v].DType})
}

// hold records the tensors of the module that a layer reads.
func (n *Network) hold(l *Layer, owners map[string]string) {
	names := unique{}
	seen := map[string]bool{}
	for _, i := range l.Nodes {
		eachTensor(n.Nodes[i].In, func(t string) {
			if seen[t] {
				return
			}
			seen[t] = true
			short := t[strings.LastIndex(t, ".")+1:]
			h := Held{Name: names.take(short), Tensor: t, Tied: owners[t]}
			if h.Tied == "" {
				owners[t] = l.Name + "." + h.Name
			}
			l.Tensors = append(l.Tensors, h)
		})
	}
}

// scope returns the module path that the nodes of a layer share. If that path is the whole model, it returns the name
// of an operator of the layer.
func (n *Network) scope(from, end int, free []bool) string {
	var common []string
	first := true
	for i := from; i < end; i++ {
		if free[i] {
			continue
		}
		path := strings.Split(n.Nodes[i].Scope, ".")
		if first {
			common, first = path, false
			continue
		}
		same := 0
		for same < min(len(path), len(common)) && path[same] == common[same] {
			same++
		}
		common = common[:same]
	}
	if s := strings.Join(common, "."); s != "" {
		return s
	}
	name := "model"
	for i := from; i < end; i++ {
		if free[i] || len(n.Nodes[i].Out) == 0 {
			continue
		}
		b := base(n.Nodes[i].Op)
		if !views[b] && !maybe[b] {
			return b
		}
		name = b
	}
	return name
}

type unique map[string]bool

func (u unique) take(name string) string {
	one := name
	for i := 2; u[one]; i++ {
		one = fmt.Sprintf("%s_%d", name, i)
	}
	u[one] = true
	return one
}
