package timing

import (
	"context"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// LayerTiming is what a Timer measured of one layer at one micro-batch size, each time
// once for every pass.
type LayerTiming struct {
	ForwardS, BackwardS []float64
	// BackwardInputS and BackwardWeightS are empty where the layer has no such half.
	BackwardInputS, BackwardWeightS     []float64
	BareForwardS, AgainS                []float64 // see profile.Cost; empty where nobody asked
	FeedS                               []float64 // empty of a layer that is the first to read no model input
	WorkerS                             []float64 // by worker, the middle forward and the middle backward together
	OutputBytes, SavedBytes             int64
	ForwardPeakBytes, BackwardPeakBytes int64
	FirstBackwardPeakBytes              int64 // of the backward that makes the parameters' gradients
	PendingBytes                        int64 // 0 where there are no halves
	// InputLeavesBytes is what is live behind the input's half of a backward less what was before it.
	InputLeavesBytes int64
	HalvesPeakBytes  profile.HalvesPeaks
}

// Request is one measurement: the whole model at one micro-batch size.
type Request struct {
	Model       *model.Model
	MicroBatch  int     // samples
	Warmup      int     // passes not counted, beside those that fill the machine
	Passes      int     // passes counted, at least
	AtLeastS    float64 // passes go on, the ones not counted for half as long, until they have taken this
	Again       bool    // passes that keep nothing and compute layers again are timed too
	Concurrency int     // workers that run the same passes at once
	Threads     int     // per worker
}

// Timer measures. run implements it on the code that trains, so that what is timed
// is what will run.
type Timer interface {
	// Crew opens the workers that time the layers of r.Model; r.MicroBatch is what they begin with.
	Crew(ctx context.Context, r Request) (Crew, error)
	// Updates is the times of one update of each layer's parameters: medians,
	// with the optimizer's name and how many copies of the parameters it keeps.
	Updates(ctx context.Context, r Request) (all []profile.UpdateTimes, optimizer string, states int, err error)
	// Transfer measures the wire between two workers of this process, and what instructions take beside layers.
	Transfer(ctx context.Context) (*profile.Transfer, error)
	// AllReduce measures how many bytes of gradients so many workers sum in a second.
	AllReduce(ctx context.Context, workers int) (float64, error)
	// Engine and Device name what was measured: "torch 1.13.1", "cpu".
	Engine() string
	Device() string
}

// Crew is the workers of a measurement, who stay for all its visits.
type Crew interface {
	// Layers is one visit to one micro-batch size: it times every layer of the model that the crew
	// was opened for, in passes over the whole model.
	Layers(ctx context.Context, r Request) ([]LayerTiming, error)
	Close()
}
