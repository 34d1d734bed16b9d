package stage

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/nn"
)

// Config is what a Stage is made of.
type Config struct {
	Device      engine.Device
	Float       engine.DType // of parameters and activations
	Graph       *Graph
	First, Last int        // layers, Last included
	Layers      []nn.Layer // of the whole model
	Seed        uint64
	States      []string // names of the tensors the optimizer keeps for each parameter; nil keeps none
	Shown       string   // of States: what Evaluate reads in the place of parameters that were updated; empty: nothing
	// Segment: 0 holds what layers made until the backward. k holds what every k-th layer of
	// the stage reads, and the backward computes k layers at a time once more.
	Segment int
	Watch   Watch // looks on; nil: nobody does
	// Initial gives parameters, buffers and states (StateName) their first values; nil
	// takes them of the model's Weights or draws them, and starts states at zero.
	Initial func(name string) (dtype engine.DType, shape []int64, data []byte, err error)
	// Before is how many updates the parameters of a layer have had that Initial gives; nil: none.
	Before func(layer int) int
}

// Stage is a run of layers with their parameters, on one device.
type Stage struct {
	Config
	dev    engine.Device
	in     []int             // values that cross the cut in front
	out    []int             // values that cross the cut behind
	feeds  []int             // model inputs that some layer reads
	leaves [][]engine.Tensor // by layer from First: parameters and buffers as nn wants them
	params []*Param          // in model order, each once
	buffs  []*Param          // buffers that forwards may write, in model order
	frozen []*Param          // what nobody changes, in model order
	open   map[int]*flight   // by micro-batch: between forward and backward
	halves map[int]*half     // by micro-batch: between the input's half of a backward and the weights'
	peak   int               // most in open at once
	sums   bool              // tied uses within this stage have been added up since the last backward

	// Gathered, if set, is called when the gradients of a layer's parameters have been added
	// to by the backward under way; LayerGradients may then be asked for them.
	Gathered func(layer int) error

	version     int              // of params and leaves: updates so far
	older       map[int]*weights // versions that micro-batches under way still use
	gathers     int              // the version on whose leaves gradients gather
	overwritten bool             // older versions were overwritten by newer ones
	taken       bool             // the gradients in hand are another stage's (TakeGradients)
	exchanged   bool             // the gradients in hand are a set that was aside: leaves gather another update's
	forwards    int              // of training so far
}

// New makes the parameters of a stage and gives them their first values.
func New(c Config) (*Stage, error) {
	if c.First < 0 || c.Last < c.First || c.Last >= len(c.Graph.Model.Layers) {
		return nil, fmt.Errorf("stage: layers %d to %d; %s has layers 0 to %d", c.First, c.Last, c.Graph.Model.Name,
			len(c.Graph.Model.Layers)-1)
	}
	s := &Stage{
		Config: c, dev: c.Device, open: map[int]*flight{}, halves: map[int]*half{}, older: map[int]*weights{},
		in: c.Graph.cut(c.First), out: c.Graph.cut(c.Last + 1), feeds: c.Graph.needs(c.First, c.Last),
	}
	if err := s.makeParams(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// In is the values that cross the cut in front, Out those that cross the cut behind, and
// Feeds the model inputs that a layer of the stage reads; all ascending.
func (s *Stage) In() []int    { return s.in }
func (s *Stage) Out() []int   { return s.out }
func (s *Stage) Feeds() []int { return s.feeds }

// HoldsLoss says whether the stage has the model's last layer.
func (s *Stage) HoldsLoss() bool { return s.Last == len(s.Graph.Model.Layers)-1 }

// Open is how many micro-batches are between their forward and their backward, and Peak
// the most there have been.
func (s *Stage) Open() int { return len(s.open) }
func (s *Stage) Peak() int { return s.peak }

// Forwards is how many micro-batches have gone forward to train.
func (s *Stage) Forwards() int { return s.forwards }

// Close frees every tensor of the stage.
func (s *Stage) Close() {
	for micro, f := range s.open {
		f.free()
		delete(s.open, micro)
	}
	for micro, h := range s.halves {
		freeWorks(h.works)
		delete(s.halves, micro)
	}
	for v, w := range s.older {
		w.free()
		delete(s.older, v)
	}
	for _, p := range slices.Concat(s.params, s.buffs, s.frozen) {
		for _, u := range p.Uses {
			if u.leaf != p.Value {
				free(u.leaf)
			}
			free(u.grad)
		}
		free(p.Value)
		for _, t := range p.State {
			free(t)
		}
	}
	s.params, s.buffs, s.frozen = nil, nil, nil
}

func free(t engine.Tensor) {
	if t != nil {
		t.Free()
	}
}
