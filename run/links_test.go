package run

import (
	"sync/atomic"
	"testing"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/pipe"
)

// tallied counts what its workers send to others.
type tallied struct {
	wire.Carrier
	bytes *atomic.Int64
}

func (c tallied) Send(epoch uint32, e wire.Edge, n uint32, frames []*wire.Buffer, done func(error)) {
	for _, b := range frames {
		if e.From != e.To && b.DType == wire.F64 { // excludes headers of messages
			c.bytes.Add(b.Bytes())
		}
	}
	c.Carrier.Send(epoch, e, n, frames, done)
}

// If all stages are on the same workers, the gradients of tied parameters need no messages. Only the sum over replicas
// sends messages. Each of the two replicas sends the half that the other one sums, and then the half that it has summed
// itself.
func TestTiedGradientsStayOnTheirWorker(t *testing.T) {
	e := testEngine(t)
	all := crossings(t)
	x := all[len(all)-2]
	if x.name != "lstm" {
		t.Fatal(x.name)
	}
	c := x.config(t, e, evenCuts(len(x.model.Layers), 3), "dp-overlap")
	c.Train.Clip, c.Plan.Replication, c.Plan.MicroBatches = 0, "round_robin", 4
	for s := range c.Plan.Stages {
		c.Plan.Stages[s].Devices = []int{0, 1}
	}
	want := sequential(t, c, synchronous(c))
	var sent atomic.Int64
	c.Wire.Carriers = func(workers int) ([]wire.Carrier, error) {
		all, err := pipe.New(workers)
		for i := range all {
			all[i] = tallied{all[i], &sent}
		}
		return all, err
	}
	if err := sameWeights(want, train(t, c).Weights); err != nil {
		t.Error(err)
	}
	var held int64 // a tied parameter counts once per stage
	for s, st := range c.Plan.Stages {
		for _, l := range x.model.Layers[st.FirstLayer : st.LastLayer+1] {
			for _, p := range l.Params {
				if owner := p.Tied; owner != "" && c.Plan.StageOf(len(x.model.Layers))[x.model.Index("embed")] == s {
					continue
				}
				n := int64(8) // bytes of a float64, this engine's type
				for _, d := range p.Shape {
					n *= int64(d)
				}
				held += n
			}
		}
	}
	if got, want := sent.Load(), int64(c.Train.Steps)*2*held; got != want {
		t.Errorf("%d bytes were sent in %d steps; the sums over replicas are %d", got, c.Train.Steps, want)
	}
}
