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

// Options say what a Record should contain. Zero values mean the defaults in brackets.
type Options struct {
	MicroBatches []int  // [1 2 4 8]
	Optimizer    string // the optimizer's settings: only a key for the stored updates
	// Quick stops after a few seconds, with rounds over as many of the smaller sizes as fit. Without Quick, all sizes are
	// visited in at least leastRounds rounds, or in Passes rounds if Passes is set to less.
	Quick bool
	// Every makes Quick measure all of the sizes, however long that takes.
	Every bool
	// Passes is the least number of passes to count for each size [15, or as many as fit in enoughS]. If Passes is 1,
	// passes that recompute layers are not timed.
	Passes int
	// AtLeastS is the least total time of the counted passes of one visit to a size, in seconds [0.1].
	AtLeastS float64
	// Progress is told what is done and what remains; may be nil.
	Progress *progress.Work
	// Doing is called with a description of what is being done where Progress cannot show it; may be nil.
	Doing func(what string)
	// Keep is called after new measurements; may be nil. After a visit, it is not called if the last call was less than
	// keptEvery ago.
	Keep func() error

	now func() time.Time // the clock; nil means the system's
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

// Measure profiles a model with no earlier measurements, including the wire between with.Workers workers. It times the
// micro-batch sizes in passes over the whole model, in several rounds over all sizes. As many workers compute at once
// as in training, because cores share caches and memory bandwidth.
func Measure(ctx context.Context, m *model.Model, t Timer, with Load, o Options) (*profile.Profile, error) {
	r, l := NewRecord(m, "", with), &Links{Version: Version}
	if o.Doing == nil {
		o.Doing = func(string) {}
	}
	if err := r.Extend(ctx, m, t, o); err != nil {
		return nil, err
	}
	if err := l.Measure(ctx, t, with.Workers, o.Doing); err != nil {
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
