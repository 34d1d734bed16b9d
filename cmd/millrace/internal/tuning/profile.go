package tuning

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/measure"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/timing"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// briefPasses is the least number of passes over every layer at each of the two measured sizes. Few are enough: the
// tuning's trainings measure whole stages, and these passes only show which layers are expensive.
const (
	briefPasses = 3
	briefS      = 0.025 // minimal duration of the passes in seconds, because code is slow at first
)

// briefly measures the layers as little as a tuning of AvgPipe's degrees needs: at two small sizes, where passes are
// short. Costs of other sizes are extrapolated. The profile is not kept.
func briefly(c *cobra.Command, j *job.Job, m *model.Model, meter *cli.Meter) (*profile.Profile, error) {
	e, err := prepare.OpenEngine()
	if err != nil {
		return nil, noEngine(err)
	}
	timer, err := prepare.LayerTimer(e, j, m)
	if err != nil {
		return nil, err
	}
	sizes := prepare.MicroBatches(j)
	p, err := timing.Measure(c.Context(), m, briefTimer{timer, m, j.Train.Optimizer},
		timing.Load{Concurrency: min(j.Machine.Workers, prepare.CoresOf(j)), Threads: j.Machine.ThreadsPerWorker,
			Workers: j.Machine.Workers}, timing.Options{MicroBatches: briefSizes(sizes), Passes: 1,
			Progress: meter.Work(), Doing: meter.Doing})
	if err != nil {
		return nil, err
	}
	return avgpipe.Extrapolated(p, sizes), nil
}

// noEngine says what is still possible without the native library.
func noEngine(err error) error {
	return fmt.Errorf("%w; or name a profile that was measured elsewhere with --profile, and let the simulator stand "+
		"for the machine with --simulate", err)
}

// briefSizes returns the smallest size and a second one. The second one is the largest size that is at most an eighth
// of the greatest size, and above the smallest. Without such a size, it is the second smallest. Times and bytes of
// other sizes are extrapolated linearly.
func briefSizes(sizes []int) []int {
	if len(sizes) < 2 {
		return sizes
	}
	second := sizes[1]
	for _, s := range sizes[1:] {
		if 8*s <= sizes[len(sizes)-1] {
			second = s
		}
	}
	return []int{sizes[0], second}
}

// briefTimer measures layers in one visit and does not measure updates. It reports update times that are merely
// proportional to the bytes of parameters. Their scale comes from the tuning's trainings, which also show the time that
// instructions take besides layers.
type briefTimer struct {
	*measure.Timer
	model     *model.Model
	optimizer optim.Settings
}

// nominalUpdates is the nominal time per byte of parameters. Only the ratios of its parts matter.
var nominalUpdates = profile.UpdateTimes{UpdateS: 1e-9, PulledUpdateS: 2e-9, ReferenceUpdateS: 0.5e-9}

// Crew implements timing.Timer.
func (t briefTimer) Crew(ctx context.Context, r timing.Request) (timing.Crew, error) {
	crew, err := t.Timer.Crew(ctx, r)
	return briefCrew{crew}, err
}

type briefCrew struct{ timing.Crew }

// Layers implements timing.Crew.
func (c briefCrew) Layers(ctx context.Context, r timing.Request) ([]timing.LayerTiming, error) {
	r.Passes, r.AtLeastS = briefPasses, briefS
	return c.Crew.Layers(ctx, r)
}

// Transfer implements timing.Timer.
func (t briefTimer) Transfer(ctx context.Context) (*profile.Transfer, error) { return t.Wire(ctx) }

// Updates implements timing.Timer.
func (t briefTimer) Updates(context.Context, timing.Request) (all []profile.UpdateTimes, optimizer string,
	states int, err error) {
	for l := range t.model.Layers {
		u := nominalUpdates
		bytes := float64(4 * t.model.Layers[l].ParameterElements())
		u.Scale(bytes, bytes, bytes)
		all = append(all, u)
	}
	return all, t.optimizer.Kind, len(t.optimizer.States()), nil
}
