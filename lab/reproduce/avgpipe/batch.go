package avgpipe

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

func init() {
	table.Register("avgpipe-fig15", "AvgPipe Figure 15: GPipe and AvgPipe at its memory over batch sizes, GNMT",
		table.Uses{}, figure15)
	table.Register("avgpipe-fig16",
		"AvgPipe Figure 16: utilisation of GPipe, PipeDream-2BW and AvgPipe at its memory, GNMT", table.Uses{}, figure16)
}

// batches holds the text's statements on Figures 15 and 16.
type batches struct {
	Source       string   `yaml:"source"`
	Training     training `yaml:"training"`
	MicroBatches int      `yaml:"micro_batches"`
	Batches      []struct {
		Batch  int     `yaml:"batch"`
		Faster float64 `yaml:"faster"`
	} `yaml:"batches"`
	Peak float64 `yaml:"peak"`
}

// at returns the comparison with `batch` samples in a batch.
func (a batches) at(ctx context.Context, x world, batch int) (*comparison, error) {
	w := compared{Training: a.Training, MicroBatches: a.MicroBatches}
	w.Training.Batch = batch
	return w.in(ctx, x)
}

func figure15(ctx context.Context, _ table.Options, t *table.Table) error {
	var paper batches
	if err := table.Read(files, "fig15", &paper); err != nil {
		return err
	}
	t.Source = paper.Source
	all := append([]world{{}}, few...)
	found := make([]*comparison, len(all)*len(paper.Batches))
	err := atOnce(len(found), func(i int) (err error) {
		found[i], err = paper.at(ctx, all[i%len(all)], paper.Batches[i/len(all)].Batch)
		return err
	})
	if err != nil {
		return err
	}
	epoch := func(b, x int) float64 { // GPipe's time for a batch, divided by the number of samples
		return named(found[b*len(all)+x].rows, "GPipe").Predicted.StepS / float64(paper.Batches[b].Batch)
	}
	for b, of := range paper.Batches {
		row := t.Number(fmt.Sprintf("batch %d, GPipe's epoch over that at batch %d", of.Batch, paper.Batches[0].Batch), 1,
			epoch(b, 0)/epoch(0, 0), "%.2f", "")
		for x := range all[1:] {
			row.Ablate(all[x+1].String(), epoch(b, x+1)/epoch(0, x+1), "%.2f")
		}
		c := found[b*len(all)]
		r := named(c.rows, "GPipe")
		if r.AvgPipe == nil {
			return fmt.Errorf("nothing of AvgPipe's fits the memory of GPipe at batch %d", of.Batch)
		}
		row = t.Number(fmt.Sprintf("batch %d, AvgPipe over GPipe at %s", of.Batch, r.AvgPipe.At), of.Faster, r.Speedup(),
			"%.2fx", "").Ratio().In("faster")
		for x := range all {
			other := found[b*len(all)+x]
			if x > 0 {
				if r := named(other.rows, "GPipe"); r.AvgPipe != nil {
					row.Ablate(all[x].String(), r.Speedup(), "%.2fx at "+r.AvgPipe.At.String())
				}
			}
			free, err := other.held(func(avgpipe.Baseline) avgpipe.Budget { return avgpipe.Budget{} })
			if err != nil {
				return err
			}
			if r := named(free, "GPipe"); x == 0 || all[x].beside && all[x].fill > 0 {
				what := "no limit but the GPUs' memory"
				if x > 0 {
					what = all[x].String() + ", " + what
				}
				row.Ablate(what, r.Speedup(), "%.2fx at "+r.AvgPipe.At.String())
			}
		}
	}
	chart := table.Chart{Title: "an epoch by batch", X: "samples in a batch", Y: "ms for a sample", Log: true,
		Lines: []table.Line{{Name: "GPipe"}, {Name: "AvgPipe in its memory"}}}
	for b, of := range paper.Batches {
		r := named(found[b*len(all)].rows, "GPipe")
		for i, stepS := range []float64{r.Predicted.StepS, r.AvgPipe.StepS} {
			l := &chart.Lines[i]
			l.X, l.Y = append(l.X, float64(of.Batch)), append(l.Y, 1e3*stepS/float64(of.Batch))
		}
	}
	t.Charts = append(t.Charts, chart)
	t.Notes = append(t.Notes, note, "an epoch's time goes as a batch's over its samples")
	return nil
}

func figure16(ctx context.Context, _ table.Options, t *table.Table) error {
	var paper batches
	if err := table.Read(files, "fig15", &paper); err != nil {
		return err
	}
	t.Source = paper.Source
	const batch = 128
	var row *table.Row
	for _, x := range []world{{}, {beside: true}, {beside: true, kernels: true}, {beside: true, fill: peak}} {
		c, err := paper.at(ctx, x, batch)
		if err != nil {
			return err
		}
		if row == nil {
			if err := c.idle(t); err != nil {
				return err
			}
		}
		for _, free := range []bool{false, true} {
			higher, at, err := c.peaks(free)
			if err != nil {
				return err
			}
			what := x.String()
			if free {
				if what != "" {
					what += ", "
				}
				what += "no limit but the GPUs' memory"
			}
			if row == nil {
				row = t.Number("AvgPipe's peak utilisation at "+at+" over the better baseline's", paper.Peak, higher, "%.2fx",
					"").Ratio()
				continue
			}
			row.Ablate(what, higher, "%.2fx at "+at)
		}
	}
	t.Notes = append(t.Notes, note)
	return nil
}

// idle adds two rows for each of GPipe, PipeDream-2BW and AvgPipe with PipeDream-2BW's memory. The first row shows the
// fraction of time in which devices compute. The second row shows the rate that they reach while they compute.
func (c *comparison) idle(t *table.Table) error {
	r := named(c.rows, bounded)
	if r.AvgPipe == nil {
		return fmt.Errorf("no degrees fit the memory of %s", bounded)
	}
	for _, name := range []string{"GPipe", bounded} {
		b := named(c.rows, name)
		rate, err := reached(c.load, b.Plan, 1)
		if err != nil {
			return err
		}
		t.Number(name+", time computing", 0, 100*b.Utilisation(), "%.1f %%", "")
		t.Number(name+", of the peak rate meanwhile", 0, 100*rate, "%.0f %%", "")
	}
	rate, err := reached(c.load, r.AvgPipe.Plan, 1)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("AvgPipe(2BW) at %s, ", r.AvgPipe.At)
	t.Number(what+"time computing", 0, 100*(1-r.AvgPipe.Bubble), "%.1f %%", "")
	t.Number(what+"of the peak rate meanwhile", 0, 100*rate, "%.0f %%", "")
	return nil
}

// peaks returns AvgPipe's peak utilisation, divided by the higher peak utilisation of Figure 16's two baselines.
// AvgPipe may use PipeDream-2BW's memory or, if `free` is set, any memory. A peak is the utilisation while a device
// computes.
func (c *comparison) peaks(free bool) (higher float64, at string, err error) {
	rows := c.rows
	if free {
		if rows, err = c.held(func(avgpipe.Baseline) avgpipe.Budget { return avgpipe.Budget{} }); err != nil {
			return 0, "", err
		}
	}
	a := named(rows, bounded).AvgPipe
	if a == nil {
		return 0, "", fmt.Errorf("no degrees fit the memory of %s", bounded)
	}
	pipelines := 1
	if c.load.SideBySide {
		pipelines = a.At.Pipelines
	}
	own, err := reached(c.load, a.Plan, pipelines)
	if err != nil {
		return 0, "", err
	}
	best := 0.0
	for _, name := range []string{"GPipe", bounded} {
		rate, err := reached(c.load, named(rows, name).Plan, 1)
		if err != nil {
			return 0, "", err
		}
		best = max(best, rate)
	}
	return own / best, a.At.String(), nil
}
