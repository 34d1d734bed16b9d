package stage

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/nn"
)

// Config describes a Stage.
type Config struct {
	Device      engine.Device
	Float       engine.DType // type of parameters and activations
	Graph       *Graph
	First, Last int        // the range of layers, Last included
	Layers      []nn.Layer // all layers of the model
	Seed        uint64
	States      []string // names of the tensors that the optimizer keeps for each parameter; nil: none
	Shown       string   // one of States, which Evaluate reads in place of parameters; empty: none
	// If Segment is 0, everything that layers made is kept until the backward. If Segment is k, only the inputs of
	// every k-th layer of the stage are kept, and the backward recomputes k layers at a time.
	Segment int
	Watch   Watch // observes the work; may be nil
	// Initial returns initial values of parameters, buffers and states (StateName). If nil, they come from the
	// model's Weights or are drawn, and states start at zero.
	Initial func(name string) (dtype engine.DType, shape []int64, data []byte, err error)
	// Before returns how many updates a layer's parameters from Initial have had. If Before is nil, they have had none.
	Before func(layer int) int
}

// Stage is a range of layers with their parameters, on one device. Its methods compute micro-batches, and do other work
// that needs more than one of Params, Versions, Gradients and Statistics.
type Stage struct {
	Config
	Params     Params
	Versions   Versions
	Gradients  Gradients
	Statistics Statistics
	// Gathered, if set, is called when the backward in progress has added to the gradients of a layer's parameters.
	// Gradients.OfLayer may then be called for that layer.
	Gathered func(layer int) error

	wires  *wiring
	layers *layers
	open   flights
}

// New makes the parameters of a stage with their initial values.
func New(c Config) (*Stage, error) {
	if c.First < 0 || c.Last < c.First || c.Last >= len(c.Graph.Model.Layers) {
		return nil, fmt.Errorf("stage: layers %d to %d; %s has layers 0 to %d", c.First, c.Last, c.Graph.Model.Name,
			len(c.Graph.Model.Layers)-1)
	}
	s := &Stage{Config: c, open: flights{open: map[int]*flight{}, halves: map[int]*half{}}}
	s.wires = wire(&s.Config)
	s.layers = &layers{c: &s.Config, wires: s.wires}
	s.Params = Params{c: &s.Config}
	s.Versions = Versions{c: &s.Config, params: &s.Params, older: map[int]*weights{}}
	s.Gradients = Gradients{c: &s.Config, params: &s.Params, versions: &s.Versions}
	s.Statistics = Statistics{dev: c.Device, params: &s.Params}
	if err := makeParams(&s.Config, &s.Params); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// In returns the values that cross the cut before the stage, Out those that cross the cut after it. Feeds returns the
// model inputs that a layer of the stage reads. Each list is ascending.
func (s *Stage) In() []int    { return s.wires.in }
func (s *Stage) Out() []int   { return s.wires.out }
func (s *Stage) Feeds() []int { return s.wires.feeds }

// HoldsLoss says whether the stage has the model's last layer.
func (s *Stage) HoldsLoss() bool { return s.wires.makesLoss(s.Last) }

// Open returns how many micro-batches are between their forward and their backward, and Peak the largest number so
// far.
func (s *Stage) Open() int { return len(s.open.open) }
func (s *Stage) Peak() int { return s.open.peak }

// Forwards returns the number of training forwards so far.
func (s *Stage) Forwards() int { return s.open.forwards }

// Abandon throws away the micro-batches between their forward and their backward, and returns their number.
func (s *Stage) Abandon() (thrown int) { return s.open.abandon() }

// Drop frees an older version of the weights, which no micro-batch may use any more.
func (s *Stage) Drop(version int) error {
	if err := s.Versions.isOlder(version); err != nil {
		return err
	}
	if err := s.Gradients.gatherOn(s.Versions.Newest()); err != nil {
		return err
	}
	s.Versions.drop(version)
	return nil
}

// Settle drops every version of the weights except the newest.
func (s *Stage) Settle() error {
	for v := range s.Versions.older {
		if err := s.Drop(v); err != nil {
			return err
		}
	}
	return nil
}

// Renew makes the next version of the weights. It has the values of the previous version until the updater changes
// them. Gradients must be in hand (Gradients.Gather) if `how` is Keep.
//
// An updater (package update) calls Gradients.Gather, Renew, and then EachLayer with Versions.Writable and
// Gradients.Forget for each layer. To take an update back, it calls Return. If the gradients of two updates exist at
// the same time, it also calls Gradients.SetAside and Exchange.
func (s *Stage) Renew(how Renewal) error {
	if how == Keep {
		if err := s.Gradients.leave(); err != nil {
			return err
		}
		if err := s.Versions.keep(); err != nil {
			return err
		}
	}
	s.Versions.advance(how)
	s.Gradients.renewed(how)
	return nil
}

// Return goes back to the previous version, which Renew with Keep has kept. The gradients in hand stay.
func (s *Stage) Return() error {
	if err := s.Versions.back(); err != nil {
		return err
	}
	s.Gradients.returned()
	return nil
}

// EachLayer calls `update` once for each layer that has learned parameters, in model order, with these parameters. A
// tied parameter belongs to its first layer in this stage.
func (s *Stage) EachLayer(update func([]*Param) error) error {
	learned := s.Params.Learned
	for from := 0; from < len(learned); {
		layer, to := learned[from].Uses[0].Layer, from
		for to < len(learned) && learned[to].Uses[0].Layer == layer {
			to++
		}
		s.layers.begin(Update, layer)
		err := update(learned[from:to])
		s.layers.end(Update, layer, nil)
		if err != nil {
			return s.layers.failed(layer, err)
		}
		from = to
	}
	return nil
}

// TakeWeights sets the parameters to copies from another stage of the same layers (Params.Copies). No micro-batch
// may be in flight.
func (s *Stage) TakeWeights(values Tensors) error {
	defer values.Free()
	if len(values) != len(s.Params.Learned) || s.Open() > 0 {
		return fmt.Errorf("stage: %d parameters for layers %d to %d, which have %d and %d micro-batches under way",
			len(values), s.First, s.Last, len(s.Params.Learned), s.Open())
	}
	return s.Params.overwrite(values)
}

// Close frees every tensor of the stage.
func (s *Stage) Close() {
	s.open.free()
	s.Versions.free()
	s.Params.free()
}

func free(t engine.Tensor) {
	if t != nil {
		t.Free()
	}
}

// Values returns a float tensor's numbers in float64. It waits for the device.
func Values(dev engine.Device, t engine.Tensor) ([]float64, error) {
	h, err := dev.ToHost(t)
	if err != nil {
		return nil, err
	}
	defer h.Free()
	if err := h.Ready().Wait(); err != nil {
		return nil, err
	}
	if t.DType() == engine.Float64 {
		return slices.Clone(engine.Numbers[float64](h.Bytes())), nil
	}
	narrow := engine.Numbers[float32](h.Bytes())
	out := make([]float64, len(narrow))
	for i, x := range narrow {
		out[i] = float64(x)
	}
	return out, nil
}
