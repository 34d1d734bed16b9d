package stage

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/nn"
)

// Micro says which micro-batch a forward computes.
type Micro struct {
	ID             int // key between its forward and its backward
	Step           int
	Index          int // within the step
	FirstRow, Rows int // of the slice within the whole micro-batch
	Version        int // of the weights it goes through, forward and backward
}

// Tensors is tensors by the values they stand for.
type Tensors map[int]engine.Tensor

// Free gives all of them back.
func (t Tensors) Free() {
	for _, x := range t {
		free(x)
	}
}

// flight is what is held of a micro-batch between its forward and its backward.
type flight struct {
	micro  Micro
	given  Tensors                 // what crossed the cut in front, and model inputs
	made   []nn.Bundle             // by layer from First: outputs with their graphs; of the segment that is recomputed
	leaves [][]engine.Tensor       // by layer from First: what the layer read
	kept   Tensors                 // under recompute: what segments read that others of the stage made
	params [][]engine.Tensor       // by layer from First: the version of the parameters that it goes through
	before []map[int]engine.Tensor // under recompute, by layer from First: what the state of an nn.Stateful was
}

func (f *flight) free() {
	f.given.Free()
	f.kept.Free()
	for l := range f.made {
		f.freeLayer(l)
	}
}

// freeLayer gives back what layer First+l made and read.
func (f *flight) freeLayer(l int) {
	for _, n := range f.made[l] {
		free(n.Tensor)
	}
	for _, t := range f.leaves[l] {
		free(t)
	}
	for _, t := range f.before[l] {
		free(t)
	}
	f.made[l], f.leaves[l], f.before[l] = nil, nil, nil
}

// Forward computes a micro-batch of training. given holds the values of In and Feeds,
// which the stage owns from now on, whatever it returns. The results are copies of the
// values of Out and, on the last stage, the mean loss of the micro-batch, all of them the caller's.
//
// Copies, because the stage keeps its outputs for its backward and each worker is charged
// for the memory it would need on a device of its own.
func (s *Stage) Forward(micro Micro, given Tensors) (out Tensors, loss engine.Tensor, err error) {
	n := s.Last - s.First + 1
	f := &flight{micro: micro, given: given, made: make([]nn.Bundle, n), leaves: make([][]engine.Tensor, n),
		kept: Tensors{}, before: make([]map[int]engine.Tensor, n)}
	if _, twice := s.open[micro.ID]; twice {
		given.Free()
		return nil, nil, fmt.Errorf("stage: micro-batch %d is forwarded twice", micro.ID)
	}
	err = s.checkGiven(given)
	if err == nil {
		f.params, err = s.leavesOf(micro.Version)
	}
	if err != nil {
		given.Free()
		return nil, nil, err
	}
	if s.Segment > 0 {
		err = s.dev.NoGrad(func() error {
			var scores Scores
			out, scores, err = s.pass(f, true)
			loss = scores.Loss
			return err
		})
	} else {
		out, loss, err = s.recordAll(f)
	}
	if err != nil {
		f.free()
		out.Free()
		free(loss)
		return nil, nil, err
	}
	s.dropFeeds(f)
	s.open[micro.ID] = f
	s.peak = max(s.peak, len(s.open))
	s.forwards++
	return out, loss, nil
}

func (s *Stage) checkGiven(given Tensors) error {
	for _, ids := range [2][]int{s.in, s.feeds} {
		for _, v := range ids {
			if given[v] == nil {
				return fmt.Errorf("stage: %s has not been given", s.Graph.Name(v))
			}
		}
	}
	if want := len(s.in) + len(s.feeds); len(given) != want {
		return fmt.Errorf("stage: %d tensors given; layers %d to %d read %d", len(given), s.First, s.Last, want)
	}
	return nil
}

// record runs layers with autograd, each on leaves of its own, and keeps in f what a
// backward needs.
func (s *Stage) record(f *flight, first, last int, again bool) error {
	for l := first; l <= last; l++ {
		s.begin(Forward, l)
		err := s.recordLayer(f, l, again)
		s.end(Forward, l, f.made[l-s.First])
		if err != nil {
			return s.failed(l, err)
		}
		s.drop(f, l)
	}
	return nil
}

// recordAll is a forward that keeps everything.
func (s *Stage) recordAll(f *flight) (out Tensors, loss engine.Tensor, err error) {
	if err := s.record(f, s.First, s.Last, false); err != nil {
		return nil, nil, err
	}
	out, err = s.copies(func(v int) engine.Tensor { return s.valueOf(f, v) })
	if err == nil && s.HoldsLoss() {
		loss, err = s.apart(f.made[s.Last-s.First][0].Tensor)
	}
	if err == nil {
		s.dropSent(f)
	}
	return out, loss, err
}

func (s *Stage) recordLayer(f *flight, l int, again bool) (err error) {
	at := l - s.First
	reads := s.Graph.reads[l]
	in, leaves := make(nn.Bundle, len(reads)), make([]engine.Tensor, len(reads))
	m := s.dev.Begin()
	for i, v := range reads {
		leaf, err := s.dev.Leaf(s.valueOf(f, v), s.Graph.values[v].gradient)
		if err != nil {
			s.dev.End(m)
			return err
		}
		leaves[i], in[i] = leaf, nn.Named{Name: s.Graph.Name(v), Tensor: leaf}
	}
	made, err := s.Layers[l].Forward(s.context(f, l, true, again), in)
	if err == nil {
		err = s.checkMade(l, made)
	}
	if err != nil {
		s.dev.End(m)
		return err
	}
	keep := leaves
	for _, n := range made {
		keep = append(keep, n.Tensor)
	}
	s.dev.End(m, keep...)
	f.made[at], f.leaves[at] = made, leaves[:len(reads):len(reads)]
	return nil
}

func (s *Stage) context(f *flight, l int, training, again bool) *nn.Context {
	params := f.params[l-s.First]
	if again && len(f.before[l-s.First]) > 0 {
		params = slices.Clone(params)
		for i, t := range f.before[l-s.First] {
			params[i] = t
		}
	}
	return &nn.Context{
		Device: s.dev, Params: params, Training: training, Seed: s.Seed,
		Layer: s.Graph.Model.Position(l),
		Step:  f.micro.Step, Micro: f.micro.Index, FirstRow: f.micro.FirstRow, Rows: f.micro.Rows, Recomputing: again,
	}
}

func (s *Stage) checkMade(l int, made nn.Bundle) error {
	if want := len(s.Graph.makes[l]); len(made) < want {
		return fmt.Errorf("it yields %d tensors; its description says %d", len(made), want)
	}
	return nil
}

func (s *Stage) failed(l int, err error) error {
	return fmt.Errorf("stage: layer %s: %w", s.Graph.Model.Layers[l].Name, err)
}

// valueOf is a value within a flight: given, or made by a layer of the stage.
func (s *Stage) valueOf(f *flight, v int) engine.Tensor {
	x := &s.Graph.values[v]
	if t := f.kept[v]; t != nil {
		return t
	}
	if x.layer >= s.First && x.layer <= s.Last {
		return f.made[x.layer-s.First][x.output].Tensor
	}
	return f.given[v]
}

// apart is a handle on a number that outlives its scope and its graph.
func (s *Stage) apart(t engine.Tensor) (engine.Tensor, error) {
	leaf, err := s.dev.Leaf(t, false)
	if err != nil {
		return nil, err
	}
	return s.dev.Disown(leaf), nil
}

// copies makes a contiguous copy of every value of Out that nobody else holds.
func (s *Stage) copies(of func(v int) engine.Tensor) (Tensors, error) {
	out := Tensors{}
	for _, v := range s.out {
		t, err := Copy(s.dev, of(v))
		if err != nil {
			out.Free()
			return nil, err
		}
		out[v] = t
	}
	return out, nil
}

// Copy is a copy of a tensor that belongs to no scope.
func Copy(dev engine.Device, t engine.Tensor) (engine.Tensor, error) {
	c, err := engine.Copy(dev, t)
	if err != nil {
		return nil, err
	}
	return dev.Disown(c), nil
}

// Scores is the numbers that the last layer yields of a micro-batch. They belong to no scope.
type Scores struct {
	Loss engine.Tensor // the mean over rows
	// Correct is how many rows were right, and Reported what the layer's description has behind the loss: nil in
	// training, and where there is none.
	Correct  engine.Tensor
	Reported []engine.Tensor
}

// Free gives all of them back.
func (s *Scores) Free() {
	free(s.Loss)
	free(s.Correct)
	for _, t := range s.Reported {
		free(t)
	}
}

// pass runs the layers without autograd and frees every tensor after its last use.
func (s *Stage) pass(f *flight, training bool) (out Tensors, scores Scores, err error) {
	made := Tensors{}
	defer func() { made.Free() }()
	get := func(v int) engine.Tensor {
		if t := made[v]; t != nil {
			return t
		}
		return f.given[v]
	}
	for l := s.First; l <= s.Last; l++ {
		in := make(nn.Bundle, len(s.Graph.reads[l]))
		for i, v := range s.Graph.reads[l] {
			in[i] = nn.Named{Name: s.Graph.Name(v), Tensor: get(v)}
		}
		s.begin(Pass, l)
		m := s.dev.Begin()
		if training && s.records(l) {
			if err := s.keepState(f, l); err != nil {
				s.dev.End(m)
				return nil, Scores{}, s.failed(l, err)
			}
		}
		bundle, err := s.Layers[l].Forward(s.context(f, l, training, false), in)
		if err == nil {
			err = s.checkMade(l, bundle)
		}
		if err != nil {
			s.dev.End(m)
			return nil, Scores{}, s.failed(l, err)
		}
		var keep []engine.Tensor
		for k, v := range s.Graph.makes[l] {
			made[v] = bundle[k].Tensor
			keep = append(keep, bundle[k].Tensor)
		}
		if l == s.Last && s.HoldsLoss() {
			if scores, err = s.read(bundle, training); err != nil {
				s.dev.End(m, keep...)
				return nil, Scores{}, s.failed(l, err)
			}
		}
		s.dev.End(m, keep...)
		s.freePast(made, f.kept, l)
		s.end(Pass, l, bundle)
	}
	out, err = s.copies(get)
	if err == nil {
		s.hand(made, f.kept)
	}
	return out, scores, err
}

// read takes handles on the numbers that the last layer yields: of training the loss alone.
func (s *Stage) read(bundle nn.Bundle, training bool) (scores Scores, err error) {
	if scores.Loss, err = s.apart(bundle[0].Tensor); err != nil || training {
		return scores, err
	}
	described := len(s.Graph.makes[s.Last])
	for _, n := range bundle[1:described] {
		t, err := s.apart(n.Tensor)
		if err != nil {
			scores.Free()
			return Scores{}, err
		}
		scores.Reported = append(scores.Reported, t)
	}
	if len(bundle) > described {
		if scores.Correct, err = s.apart(bundle[described].Tensor); err != nil {
			scores.Free()
			return Scores{}, err
		}
	}
	return scores, nil
}

// freePast frees what no layer behind l reads, but for what a later segment will read
// again: that goes to kept.
func (s *Stage) freePast(made, kept Tensors, l int) {
	for v, t := range made {
		if s.Graph.values[v].lastUse > l {
			continue
		}
		if kept != nil && s.spans(v) {
			kept[v] = t
		} else {
			free(t)
		}
		delete(made, v)
	}
}

// Evaluate computes a micro-batch without training: no gradients, nothing kept. given is the stage's from now on.
// Where Shown names a state, layers read it. On the last stage it returns the micro-batch's Scores, which are the
// caller's; out is as Forward's.
func (s *Stage) Evaluate(micro Micro, given Tensors) (out Tensors, scores Scores, err error) {
	defer given.Free()
	if err := s.checkGiven(given); err != nil {
		return nil, Scores{}, err
	}
	err = s.dev.NoGrad(func() error {
		out, scores, err = s.pass(&flight{micro: micro, given: given, params: s.shown()}, false)
		return err
	})
	if err != nil {
		out.Free()
		scores.Free()
		return nil, Scores{}, err
	}
	return out, scores, nil
}
