package avgpipe

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/split"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/avgpipe"
	"github.com/millrace-ml/millrace/tune/predict"
)

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }

func figure12(ctx context.Context, _ table.Options, t *table.Table) error {
	_, err := eachComparison(ctx, t, func(w compared, c *comparison) error {
		t.Charts = append(t.Charts, c.chart("GiB of all GPUs together",
			func(r avgpipe.EqualMemory) float64 { return gib(together(r.Predicted.MemoryBytes)) },
			func(p *avgpipe.Pipelined) float64 { return gib(p.Together()) }))
		name := w.Training.Name
		for _, r := range c.rows {
			own := together(r.Predicted.MemoryBytes)
			t.Number(fmt.Sprintf("%s, %s", name, r.Name), 0, gib(own), "%.2f GiB", "")
			t.Number(fmt.Sprintf("%s, %s, the fullest GPU", name, r.Name), 0, gib(slices.Max(r.Predicted.MemoryBytes)),
				"%.2f GiB", "")
			if r.AvgPipe == nil {
				t.Word(fmt.Sprintf("%s, AvgPipe in that", name), "-", "nothing fits", "")
				continue
			}
			paper := 0.0
			if r.Name == bounded {
				paper = w.Of2BW
			}
			t.Number(fmt.Sprintf("%s, AvgPipe in that at %s, of the baseline's", name, r.AvgPipe.At), paper,
				float64(r.AvgPipe.Together())/float64(own), "%.3f", "")
		}
		if w.TogetherGB > 0 {
			t.Bound(name+", data parallelism, GB", "at least", w.TogetherGB,
				float64(together(named(c.rows, dataParallelism).Predicted.MemoryBytes))/1e9)
			r := &t.Rows[len(t.Rows)-1]
			if err := w.larger(r, c.load); err != nil {
				return err
			}
		}
		if w.MostMemory != "" {
			t.Word(name+", the most memory", w.MostMemory, slices.MaxFunc(c.rows, byMemory).Name, "")
		}
		if w.LeastMemory != "" {
			if err := w.least(ctx, t, c); err != nil {
				return err
			}
		}
		return nil
	})
	t.Notes = append(t.Notes, "of all GPUs together, unless it is said of one")
	return err
}

func byMemory(a, b avgpipe.EqualMemory) int {
	x, y := together(a.Predicted.MemoryBytes), together(b.Predicted.MemoryBytes)
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// least adds a row that names the baseline with the least memory. Then it assumes that the baseline that the paper
// names cuts a batch into twice as many micro-batches. If another baseline needs the least memory under this
// assumption, least adds its name to the row.
func (w compared) least(ctx context.Context, t *table.Table, c *comparison) error {
	row := t.Word(w.Training.Name+", the least memory of the baselines", w.LeastMemory,
		slices.MinFunc(c.rows, byMemory).Name, "")
	more, err := c.load.Baselines(ctx, 2*w.MicroBatches)
	if err != nil {
		return err
	}
	rows := slices.Clone(c.rows)
	for i := range rows {
		for _, b := range more {
			if rows[i].Name == b.Name && b.Name == w.LeastMemory {
				rows[i].Predicted = b.Predicted
			}
		}
	}
	instead(row, []switched{{w.LeastMemory + " cuts a batch into twice as many micro-batches", rows, 1}},
		func(rows []avgpipe.EqualMemory) string { return slices.MinFunc(rows, byMemory).Name })
	return nil
}

// larger adds another value to the row r: data parallelism's memory with larger micro-batches. They are as large as
// they can be if every GPU is to have at least one micro-batch of each batch.
func (w compared) larger(r *table.Row, load *avgpipe.Workload) error {
	gpus := len(load.Cluster.Devices)
	sizes := load.Profile.Sizes(load.Cluster.Devices[0])
	i := slices.IndexFunc(sizes, func(size int) bool { return load.Batch/size < gpus }) - 1
	if i < 0 {
		return nil
	}
	pl, err := split.DataParallel(load.Profile, load.Cluster, sizes[i], load.Batch/sizes[i], gpus)
	if err != nil {
		return err
	}
	predicted, err := predict.Plan(load.Profile, load.Cluster, pl, load.Clip)
	if err != nil {
		return err
	}
	r.Ablate(fmt.Sprintf("micro-batches are of %d samples", sizes[i]),
		float64(together(predicted.MemoryBytes))/1e9, "%.2f")
	return nil
}

func figure13(ctx context.Context, _ table.Options, t *table.Table) error {
	_, err := eachComparison(ctx, t, func(w compared, c *comparison) error {
		t.Charts = append(t.Charts, c.chart("% of the time computing",
			func(r avgpipe.EqualMemory) float64 { return 100 * r.Utilisation() },
			func(p *avgpipe.Pipelined) float64 { return 100 * (1 - p.Bubble) }))
		name := w.Training.Name
		for _, r := range c.rows {
			rate, err := reached(c.load, r.Plan, 1)
			if err != nil {
				return err
			}
			t.Number(fmt.Sprintf("%s, %s, time computing", name, r.Name), 0, 100*r.Utilisation(), "%.1f %%", "")
			t.Number(fmt.Sprintf("%s, %s, of the peak rate meanwhile", name, r.Name), 0, 100*rate, "%.0f %%", "")
			if a := r.AvgPipe; a != nil {
				if rate, err = reached(c.load, a.Plan, 1); err != nil {
					return err
				}
				t.Number(fmt.Sprintf("%s, AvgPipe in its memory at %s, time computing", name, a.At), 0, 100*(1-a.Bubble),
					"%.1f %%", "")
				t.Number(fmt.Sprintf("%s, AvgPipe in its memory at %s, of the peak rate meanwhile", name, a.At), 0, 100*rate,
					"%.0f %%", "")
			}
		}
		others, err := c.otherwise(ctx, t, append(slices.Clone(few), world{blocking: true, beside: true, fill: peak}))
		if err != nil {
			return err
		}
		row := t.Number(name+", AvgPipe's utilisation over the baselines', the mean", w.MoreUsed, moreUsed(c.rows), "%.2fx",
			"").Ratio().In("more used")
		for _, o := range others {
			row.Ablate(o.what, moreUsed(o.rows), "%.2fx")
		}
		return nil
	})
	t.Notes = append(t.Notes, "utilisation is the part of the time in which a GPU computes times the part of its peak "+
		"rate that it reaches meanwhile: the same work in less time, whatever the micro-batches")
	return err
}

// moreUsed returns AvgPipe's utilisation divided by a baseline's, averaged over the baselines that are pipelines.
// AvgPipe and a baseline do the same work for a batch, so the ratio of utilisations is the inverse ratio of batch
// times.
func moreUsed(rows []avgpipe.EqualMemory) float64 {
	var all []float64
	for _, r := range rows {
		if r.Fits && r.AvgPipe != nil && r.Name != dataParallelism {
			all = append(all, r.Speedup())
		}
	}
	return stats.Mean(all)
}

// reached returns which fraction of its peak rate a plan's device reaches while it computes, averaged over stages.
// atOnce is the number of pipelines that compute at the same time.
func reached(w *avgpipe.Workload, pl *plan.Plan, atOnce int) (float64, error) {
	sum := 0.0
	for _, st := range pl.Stages {
		forward, backward, err := w.Profile.Stretches(w.Cluster.Devices[st.Devices[0]], st.FirstLayer, st.LastLayer,
			pl.MicroBatch)
		if err != nil {
			return 0, err
		}
		now, peak := 0.0, 0.0
		for _, s := range slices.Concat(forward, backward) {
			now, peak = now+max(s.NowS, float64(atOnce)*s.PeakS), peak+float64(atOnce)*s.PeakS
		}
		sum += profile.Stretch{PeakS: peak}.Phi(now)
	}
	return sum / float64(len(pl.Stages)), nil
}
