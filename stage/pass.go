package stage

import (
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/nn"
)

// Scores holds the numbers that the last layer makes for a micro-batch. They are outside of all scopes.
type Scores struct {
	Loss engine.Tensor // the mean over rows
	// Correct is the number of rows that were right. Reported holds the further numbers that the layer's description
	// lists after the loss. Each is nil in training, and if the layer does not make it.
	Correct  engine.Tensor
	Reported []engine.Tensor
}

// Free frees all the tensors.
func (s *Scores) Free() {
	free(s.Loss)
	free(s.Correct)
	for _, t := range s.Reported {
		free(t)
	}
}

// pass computes a flight's layers without autograd, for an evaluation, or for a forward that is recomputed later. It
// holds each value that a layer made until the value's last reader has run. It hands the flight the values that a
// recomputation needs.
type pass struct {
	f        *flight
	training bool
	live     Tensors // values that layers have made
	scores   Scores
}

func (f *flight) pass(training bool) (out Tensors, scores Scores, err error) {
	p := &pass{f: f, training: training, live: Tensors{}}
	defer func() { p.live.Free() }()
	for l := f.y.c.First; l <= f.y.c.Last; l++ {
		if err := p.layer(l); err != nil {
			return nil, Scores{}, f.y.failed(l, err)
		}
	}
	out, err = f.y.copies(p.value)
	if err == nil {
		p.hand()
	}
	return out, p.scores, err
}

// value returns a layer's input: a live value, or a given one.
func (p *pass) value(v int) engine.Tensor {
	if t := p.live[v]; t != nil {
		return t
	}
	return p.f.given[v]
}

func (p *pass) layer(l int) error {
	dev, graph := p.f.y.c.Device, p.f.y.c.Graph
	in := make(nn.Bundle, len(graph.reads[l]))
	for i, v := range graph.reads[l] {
		in[i] = nn.Named{Name: graph.Name(v), Tensor: p.value(v)}
	}
	p.f.y.begin(Pass, l)
	m := dev.Begin()
	if p.training && p.f.y.wires.records(l) {
		if err := p.f.keepState(l); err != nil {
			dev.End(m)
			return err
		}
	}
	bundle, err := p.f.y.call(l, p.f.context(l, p.training, false), in)
	if err != nil {
		dev.End(m)
		return err
	}
	var keep []engine.Tensor
	for k, v := range graph.makes[l] {
		p.live[v] = bundle[k].Tensor
		keep = append(keep, bundle[k].Tensor)
	}
	if p.f.y.wires.makesLoss(l) {
		if err := p.read(bundle); err != nil {
			dev.End(m, keep...)
			return err
		}
	}
	dev.End(m, keep...)
	p.freePast(l)
	p.f.y.end(Pass, l, bundle)
	return nil
}

// read takes handles on the numbers that the last layer makes. In training that is only the loss.
func (p *pass) read(bundle nn.Bundle) (err error) {
	var scores Scores
	if scores.Loss, err = p.f.y.apart(bundle[0].Tensor); err != nil {
		return err
	}
	if p.training {
		p.scores = scores
		return nil
	}
	described := len(p.f.y.c.Graph.makes[p.f.y.c.Last])
	for _, n := range bundle[1:described] {
		t, err := p.f.y.apart(n.Tensor)
		if err != nil {
			scores.Free()
			return err
		}
		scores.Reported = append(scores.Reported, t)
	}
	if len(bundle) > described {
		if scores.Correct, err = p.f.y.apart(bundle[described].Tensor); err != nil {
			scores.Free()
			return err
		}
	}
	p.scores = scores
	return nil
}

// freePast removes the values that no layer after l reads. It gives the flight those values that a later segment reads
// in its recomputation, and frees the other values.
func (p *pass) freePast(l int) {
	for v, t := range p.live {
		if p.f.y.c.Graph.values[v].lastUse > l {
			continue
		}
		if !p.keep(v, t) {
			free(t)
		}
		delete(p.live, v)
	}
}

// hand stores in the flight the remaining values that later segments read in their recomputation.
func (p *pass) hand() {
	for v, t := range p.live {
		if p.keep(v, t) {
			delete(p.live, v)
		}
	}
}

// keep gives the flight a value that a later segment reads in its recomputation. It reports whether it did. An
// evaluation keeps none.
func (p *pass) keep(v int, t engine.Tensor) bool {
	if p.f.kept == nil || !p.f.y.wires.spans(v) {
		return false
	}
	p.f.kept[v] = t
	return true
}
