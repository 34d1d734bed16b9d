package stage

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/nn"
)

// Micro says which micro-batch a forward computes.
type Micro struct {
	ID             int // connects the micro-batch's forward and its backward
	Step           int
	Index          int // number of the micro-batch within the step
	FirstRow, Rows int // the replica's slice, in rows: where it begins in the micro-batch, and its length
	Version        int // version of the weights, for forward and backward
}

// Tensors holds tensors by the number of their value.
type Tensors map[int]engine.Tensor

// Free frees all the tensors.
func (t Tensors) Free() {
	for _, x := range t {
		free(x)
	}
}

// flights holds the micro-batches in flight. Each is in `open` between its forward and its backward. After
// BackwardInput it is in `halves` until BackwardWeight.
type flights struct {
	open     map[int]*flight
	halves   map[int]*half
	peak     int // largest size of `open` so far
	forwards int // training forwards so far
}

// mayStart refuses a second forward of a micro-batch before its backward.
func (a *flights) mayStart(id int) error {
	if _, twice := a.open[id]; twice {
		return fmt.Errorf("stage: micro-batch %d is forwarded twice", id)
	}
	return nil
}

// start adds a micro-batch whose forward has run.
func (a *flights) start(f *flight) {
	a.open[f.micro.ID] = f
	a.peak = max(a.peak, len(a.open))
	a.forwards++
}

// end takes out the micro-batch whose backward begins.
func (a *flights) end(id int) (*flight, error) {
	f := a.open[id]
	if f == nil {
		return nil, fmt.Errorf("stage: micro-batch %d has no forward to go back from", id)
	}
	delete(a.open, id)
	return f, nil
}

// endHalf takes out the micro-batch whose BackwardWeight begins.
func (a *flights) endHalf(id int) (*half, error) {
	h := a.halves[id]
	if h == nil {
		return nil, fmt.Errorf("stage: micro-batch %d has no input gradient to go on from", id)
	}
	delete(a.halves, id)
	return h, nil
}

// abandon throws away all open micro-batches, and returns their number.
func (a *flights) abandon() (thrown int) {
	thrown = len(a.open)
	for micro, f := range a.open {
		f.free()
		delete(a.open, micro)
	}
	return thrown
}

func (a *flights) free() {
	a.abandon()
	for micro, h := range a.halves {
		h.free()
		delete(a.halves, micro)
	}
}

// flight holds the values of a micro-batch that layers' backwards need, from its forward to its backward. Of layers
// that are recomputed, it holds only the inputs of each segment, and the layers' states before the forward.
type flight struct {
	y      *layers
	micro  Micro
	given  Tensors                 // values that crossed the cut before the stage, and model inputs
	made   []nn.Bundle             // by layer from First: outputs with graphs; under recompute only of one segment
	leaves [][]engine.Tensor       // by layer from First: the layer's inputs
	kept   Tensors                 // under recompute: values of one segment that a later segment reads
	params [][]engine.Tensor       // by layer from First: parameters, of the micro-batch's version
	before []map[int]engine.Tensor // under recompute, by layer from First: the state of an nn.Stateful before its forward
}

func (y *layers) newFlight(m Micro, given Tensors) *flight {
	n := y.c.Last - y.c.First + 1
	return &flight{y: y, micro: m, given: given, made: make([]nn.Bundle, n), leaves: make([][]engine.Tensor, n),
		kept: Tensors{}, before: make([]map[int]engine.Tensor, n)}
}

// at returns the index of layer l in slices that begin with layer First.
func (f *flight) at(l int) int { return l - f.y.c.First }

// value returns the tensor of a value: one that is kept, made by a layer of the stage, or given.
func (f *flight) value(v int) engine.Tensor {
	x := &f.y.c.Graph.values[v]
	if t := f.kept[v]; t != nil {
		return t
	}
	if f.y.wires.has(x.layer) {
		return f.made[f.at(x.layer)][x.output].Tensor
	}
	return f.given[v]
}

// context returns what layer l may know about the micro-batch. If the layer is recomputed, its parameters include the
// state that it had before its first forward.
func (f *flight) context(l int, training, again bool) *nn.Context {
	params := f.params[f.at(l)]
	if again && len(f.before[f.at(l)]) > 0 {
		params = slices.Clone(params)
		for i, t := range f.before[f.at(l)] {
			params[i] = t
		}
	}
	c := f.y.c
	return &nn.Context{
		Device: c.Device, Params: params, Training: training, Seed: c.Seed,
		Layer: c.Graph.Model.Position(l),
		Step:  f.micro.Step, Micro: f.micro.Index, FirstRow: f.micro.FirstRow, Rows: f.micro.Rows, Recomputing: again,
	}
}

// record computes layers with autograd, each on leaves of its own, and keeps what a backward needs.
func (f *flight) record(first, last int, again bool) error {
	for l := first; l <= last; l++ {
		f.y.begin(Forward, l)
		err := f.recordLayer(l, again)
		f.y.end(Forward, l, f.made[f.at(l)])
		if err != nil {
			return f.y.failed(l, err)
		}
		f.drop(l)
	}
	return nil
}

func (f *flight) recordLayer(l int, again bool) (err error) {
	dev, graph := f.y.c.Device, f.y.c.Graph
	reads := graph.reads[l]
	in, leaves := make(nn.Bundle, len(reads)), make([]engine.Tensor, len(reads))
	m := dev.Begin()
	for i, v := range reads {
		leaf, err := dev.Leaf(f.value(v), graph.values[v].gradient)
		if err != nil {
			dev.End(m)
			return err
		}
		leaves[i], in[i] = leaf, nn.Named{Name: graph.Name(v), Tensor: leaf}
	}
	made, err := f.y.call(l, f.context(l, true, again), in)
	if err != nil {
		dev.End(m)
		return err
	}
	keep := leaves
	for _, n := range made {
		keep = append(keep, n.Tensor)
	}
	dev.End(m, keep...)
	f.made[f.at(l)], f.leaves[f.at(l)] = made, leaves[:len(reads):len(reads)]
	return nil
}

// keepState copies the buffers that a layer reads after changing them, for its recomputation.
func (f *flight) keepState(l int) error {
	of, stateful := f.y.c.Layers[l].(nn.Stateful)
	if !stateful {
		return nil
	}
	at := f.at(l)
	f.before[at] = map[int]engine.Tensor{}
	for _, i := range of.State() {
		t, err := Copy(f.y.c.Device, f.params[at][i])
		if err != nil {
			return err
		}
		f.before[at][i] = t
	}
	return nil
}

// drop frees, after layer l, the layer's inputs and the values whose last reader it is. It keeps those that a backward
// needs.
func (f *flight) drop(l int) {
	graph, at := f.y.c.Graph, f.at(l)
	if !f.y.wires.back(l) {
		for _, t := range f.leaves[at] {
			free(t)
		}
		f.leaves[at] = nil
	}
	for _, v := range slices.Concat(graph.reads[l], graph.makes[l]) {
		if x := &graph.values[v]; x.lastUse <= l {
			f.dropMade(v)
		}
	}
}

// dropMade frees a value made by the stage, unless a backward needs it.
func (f *flight) dropMade(v int) {
	x := &f.y.c.Graph.values[v]
	if !f.y.wires.has(x.layer) || !f.y.wires.forwardOnly(v) {
		return
	}
	if made := f.made[f.at(x.layer)]; x.output < len(made) {
		free(made[x.output].Tensor)
		made[x.output].Tensor = nil
	}
}

// dropFeeds frees the model inputs that no backward needs.
func (f *flight) dropFeeds() {
	for _, v := range f.y.wires.feeds {
		if f.y.wires.forwardOnly(v) {
			free(f.given[v])
			delete(f.given, v)
		}
	}
}

// forget frees the kept values that layers from `first` on make. The segment that begins there is about to make them
// again.
func (f *flight) forget(first int) {
	for v, t := range f.kept {
		if f.y.c.Graph.values[v].layer >= first {
			free(t)
			delete(f.kept, v)
		}
	}
}

func (f *flight) free() {
	f.given.Free()
	f.kept.Free()
	for at := range f.made {
		f.freeLayer(at)
	}
}

// freeLayer frees what layer First+at made and read, and the state kept for it.
func (f *flight) freeLayer(at int) {
	for _, n := range f.made[at] {
		free(n.Tensor)
	}
	for _, t := range f.leaves[at] {
		free(t)
	}
	for _, t := range f.before[at] {
		free(t)
	}
	f.made[at], f.leaves[at], f.before[at] = nil, nil, nil
}
