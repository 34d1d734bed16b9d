package avgpipe

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/avgpipe"
	"github.com/millrace-ml/millrace/tune/predict"
)

func init() {
	table.Register("avgpipe-fig15", "AvgPipe Figure 15: GPipe and AvgPipe at its memory over batch sizes, GNMT",
		table.Uses{}, avgpipeFigure15)
	table.Register("avgpipe-fig16",
		"AvgPipe Figure 16: utilisation of GPipe, PipeDream-2BW and AvgPipe at its memory, GNMT",
		table.Uses{}, avgpipeFigure16)
}

// avgpipeBatches is what the text says of Figures 15 and 16.
type avgpipeBatches struct {
	Source       string          `yaml:"source"`
	Training     avgpipeTraining `yaml:"training"`
	MicroBatches int             `yaml:"micro_batches"`
	Batches      []struct {
		Batch  int     `yaml:"batch"`
		Faster float64 `yaml:"faster"`
	} `yaml:"batches"`
	Peak float64 `yaml:"peak"`
}

// held is the training at a batch with its baselines, each beside AvgPipe at its memory, by name.
func (a avgpipeBatches) held(ctx context.Context, batch int) (*avgpipe.Workload,
	map[string]avgpipe.EqualMemory, error) {
	training := a.Training
	training.Batch = batch
	load, sizes, err := training.load(ctx)
	if err != nil {
		return nil, nil, err
	}
	baselines, err := load.Baselines(ctx, a.MicroBatches)
	if err != nil {
		return nil, nil, err
	}
	grid, err := avgpipe.Grid(batch, sizes, training.Pipelines)
	if err != nil {
		return nil, nil, err
	}
	rows, err := load.AtEqualMemory(ctx, grid, baselines)
	if err != nil {
		return nil, nil, err
	}
	by := map[string]avgpipe.EqualMemory{}
	for _, r := range rows {
		by[r.Name] = r
	}
	return load, by, nil
}

func avgpipeFigure15(ctx context.Context, _ table.Options, t *table.Table) error {
	var paper avgpipeBatches
	if err := table.Read(files, "fig15", &paper); err != nil {
		return err
	}
	t.Source = paper.Source
	smallest := 0.0 // GPipe's time of a sample at the smallest batch
	for _, b := range paper.Batches {
		_, by, err := paper.held(ctx, b.Batch)
		if err != nil {
			return err
		}
		r, ok := by["GPipe"]
		if !ok {
			return fmt.Errorf("GPipe has no plan at batch %d", b.Batch)
		}
		epoch := r.Predicted.StepS / float64(b.Batch)
		if smallest == 0 {
			smallest = epoch
		}
		t.Number(fmt.Sprintf("batch %d, GPipe's epoch over that at batch %d", b.Batch, paper.Batches[0].Batch), 1,
			epoch/smallest, "%.2f",
			"the text says similar: its kernels are full at 64; by roofline larger micro-batches are still more efficient, "+
				"and latencies and updates are shared by more samples")
		if r.AvgPipe == nil {
			t.Word(fmt.Sprintf("batch %d, AvgPipe over GPipe", b.Batch), "-", "none fits "+terminal.Bytes(r.SmallestBytes),
				"the baseline holds less than AvgPipe's leanest degrees")
			continue
		}
		t.Number(fmt.Sprintf("batch %d, AvgPipe over GPipe at %s of %s", b.Batch, r.AvgPipe.At,
			terminal.Bytes(r.AvgPipe.Peak())), b.Faster, r.Speedup(), "%.2fx",
			"no more than GPipe's bubble and its waits for messages can be won here: pipelines side by side share a device's "+
				"rate, they do not add to it")
	}
	t.Notes = append(t.Notes, avgpipeNote)
	return nil
}

func avgpipeFigure16(ctx context.Context, _ table.Options, t *table.Table) error {
	var paper avgpipeBatches
	if err := table.Read(files, "fig15", &paper); err != nil {
		return err
	}
	t.Source = paper.Source
	const batch = 128
	load, by, err := paper.held(ctx, batch)
	if err != nil {
		return err
	}
	avg := by["PipeDream-2BW"].AvgPipe
	if avg == nil {
		return errors.New("no degrees fit PipeDream-2BW's memory")
	}
	predicted, err := predict.Plan(load.Profile, load.Cluster, avg.Plan, load.Clip)
	if err != nil {
		return err
	}
	best := 0.0
	for _, p := range []struct {
		name      string
		plan      *plan.Plan
		predicted plan.Predicted
	}{
		{"GPipe", by["GPipe"].Plan, by["GPipe"].Predicted},
		{"PipeDream-2BW", by["PipeDream-2BW"].Plan, by["PipeDream-2BW"].Predicted},
		{fmt.Sprintf("AvgPipe(2BW) at %s", avg.At), avg.Plan, predicted},
	} {
		rate, err := reached(load, p.plan)
		if err != nil {
			return err
		}
		t.Number(p.name+", time computing", 0, 100*(1-p.predicted.Bubble), "%.0f %%", "")
		t.Number(p.name+", part of the peak rate while it computes", 0, 100*rate, "%.0f %%", "")
		if p.plan != avg.Plan {
			best = max(best, rate)
			continue
		}
		t.Number("AvgPipe(2BW), peak utilisation over the better baseline's", paper.Peak, rate/best, "%.2fx",
			"a device runs one computation at a time here, so that a second pipeline fills gaps and does not raise the peak; "+
				"its kernels overlap on the paper's GPUs")
	}
	t.Notes = append(t.Notes, avgpipeNote)
	return nil
}

// reached is the part of their peak rate at which a plan's devices compute, the mean over stages.
func reached(w *avgpipe.Workload, pl *plan.Plan) (float64, error) {
	sum := 0.0
	for _, st := range pl.Stages {
		forward, backward, err := w.Profile.Stretches(w.Cluster.Devices[st.Devices[0]], st.FirstLayer, st.LastLayer,
			pl.MicroBatch)
		if err != nil {
			return 0, err
		}
		now, peak := 0.0, 0.0
		for _, s := range slices.Concat(forward, backward) {
			now, peak = now+s.NowS, peak+s.PeakS
		}
		sum += profile.Stretch{PeakS: peak}.Phi(now)
	}
	return sum / float64(len(pl.Stages)), nil
}
