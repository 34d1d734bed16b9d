package timing

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// Options says what a Record is to hold. Zero values take the defaults in brackets.
type Options struct {
	MicroBatches []int  // [1 2 4 8]
	Optimizer    string // settings by which updates are found again; opaque here
	// Quick stops after a few seconds, with rounds over as many of the smaller sizes as are measured in that time.
	// Otherwise all sizes are visited in leastRounds rounds at least.
	Quick bool
	// Every has Quick measure each of the sizes, however long that takes.
	Every bool
	// Passes is how many are counted of each size, at least [15, or as many as enoughS lets]. With 1
	// no passes are timed that compute layers again.
	Passes int
	// AtLeastS is how long the counted passes of one visit to a micro-batch size take together [0.1].
	AtLeastS float64
	// Progress is told what is done and what is left; nil is nobody.
	Progress *progress.Work
	// Keep is called whenever the Record has come to hold more; nil is nobody.
	Keep func() error

	now func() time.Time // the clock; nil is the system's
}

func (o Options) filled() (Options, error) {
	if len(o.MicroBatches) == 0 {
		o.MicroBatches = []int{1, 2, 4, 8}
	}
	o.MicroBatches = slices.Clone(o.MicroBatches)
	slices.Sort(o.MicroBatches)
	o.MicroBatches = slices.Compact(o.MicroBatches)
	if o.MicroBatches[0] < 1 {
		return o, fmt.Errorf("profile: micro-batch of %d samples; sizes are 1 at least", o.MicroBatches[0])
	}
	if o.Passes < 0 {
		return o, fmt.Errorf("profile: %d passes; give 1 at least, or 0 for as many as time allows", o.Passes)
	}
	if o.AtLeastS == 0 {
		o.AtLeastS = 0.1
	}
	if o.Progress == nil {
		o.Progress = &progress.Work{}
	}
	if o.Keep == nil {
		o.Keep = func() error { return nil }
	}
	if o.now == nil {
		o.now = time.Now
	}
	return o, nil
}

// Measure profiles a model from nothing, the wire between so many workers included: each micro-batch size in passes
// over the whole model, the sizes in turn in several rounds, with as many workers computing at once as will train,
// because cores share caches and memory bandwidth.
func Measure(ctx context.Context, m *model.Model, t Timer, with Load, o Options) (*profile.Profile, error) {
	r, l := NewRecord(m, "", with), &Links{Version: Version}
	if err := r.Extend(ctx, m, t, o); err != nil {
		return nil, err
	}
	if err := l.Measure(ctx, t, with.Workers); err != nil {
		return nil, err
	}
	sizes, _ := r.Sizes()
	p, err := r.Profile(m, sizes, o.Optimizer)
	if err != nil {
		return nil, err
	}
	p.Transfer = l.Between(with.Workers)
	return p, p.Validate()
}
