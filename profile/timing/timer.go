package timing

import (
	"context"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// LayerTiming is what a Timer measured of one layer at one micro-batch size. A list of times has one entry for each
// repetition.
type LayerTiming struct {
	ForwardS, BackwardS []float64
	// BackwardInputS and BackwardWeightS are empty if the layer has no such half.
	BackwardInputS, BackwardWeightS     []float64
	BareForwardS, AgainS                []float64 // see profile.Cost; empty unless requested
	FeedS                               []float64 // empty unless the layer is the first to read some model input
	WorkerS                             []float64 // by worker: median forward plus median backward
	OutputBytes, SavedBytes             int64
	ForwardPeakBytes, BackwardPeakBytes int64
	FirstBackwardPeakBytes              int64 // of the backward that makes the parameters' gradients
	PendingBytes                        int64 // 0 if the layer's backward has no halves
	// InputLeavesBytes is how many more bytes are live after the input half of a backward than before it.
	InputLeavesBytes int64
	HalvesPeakBytes  profile.HalvesPeaks
}

// Request asks for one measurement of a model at one micro-batch size.
type Request struct {
	Model       *model.Model
	MicroBatch  int     // samples
	Warmup      int     // least number of passes before the counted ones
	Passes      int     // least number of counted passes
	AtLeastS    float64 // counted passes last at least this many seconds; warm-up passes last half as long
	Again       bool    // also times passes that keep nothing and recompute layers
	Concurrency int     // workers that run the same passes at once
	Threads     int     // per worker
}

// Timer makes the measurements. Package measure implements it with the code that trains models, so that this very code
// is measured.
type Timer interface {
	// Crew starts the workers that time the layers of r.Model. They begin with r.MicroBatch.
	Crew(ctx context.Context, r Request) (Crew, error)
	// Updates returns the median times of one update of each layer's parameters. It also returns the optimizer's name
	// and how many copies of the parameters it keeps.
	Updates(ctx context.Context, r Request) (all []profile.UpdateTimes, optimizer string, states int, err error)
	// Transfer measures the wire between two workers of this process, and what instructions cost in addition to layers.
	Transfer(ctx context.Context) (*profile.Transfer, error)
	// AllReduce measures how many bytes of gradients this many workers sum per second. It calls `told` before and
	// during each sum, from any goroutine.
	AllReduce(ctx context.Context, workers int, told func(Summing)) (float64, error)
	// Engine and Device name what was measured: "torch 1.13.1", "cpu".
	Engine() string
	Device() string
}

// Summing is the progress of a measurement of all-reduces.
type Summing struct {
	Sum, Of     int // number of the current sum, from 1; number of all sums
	Pairs, Each int // additions of one worker's gradients to another's: in this sum so far, and in a whole sum
}

// Crew is the group of workers that make a measurement. They keep running for all its visits.
type Crew interface {
	// Layers makes one visit to one micro-batch size. It times every layer of the crew's model, in passes over the
	// whole model.
	Layers(ctx context.Context, r Request) ([]LayerTiming, error)
	Close()
}
