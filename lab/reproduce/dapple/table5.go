package dapple

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
)

func init() {
	table.Register("dapple-table5", "DAPPLE Table 5: GPipe and DAPPLE on BERT-48, two stages, Config-B",
		table.Uses{}, dappleTable5)
}

// gpipeRow is a row of Table 5.
type gpipeRow struct {
	name, schedule string
	recompute      bool
	micros         int
	rate, memory   float64 // samples/s and GB; 0: out of memory
}

// on is samples a second, the mean of both devices' peaks in GB, and whether both have as much memory.
func (w gpipeRow) on(b *bench.Bench) (rate, memory float64, fits string, err error) {
	s, err := b.BestSplit(bench.Ones(2), 2)
	if err != nil {
		return 0, 0, "", err
	}
	pl, err := b.Stages(s.Last, bench.Ones(2), 2, w.micros)
	if err != nil {
		return 0, 0, "", err
	}
	if err := bench.As(pl, w.schedule); err != nil {
		return 0, 0, "", err
	}
	for i := range pl.Stages {
		if w.recompute {
			pl.Stages[i].Recompute = plan.KeepInput
		}
	}
	q, err := b.Predict(pl)
	if err != nil {
		return 0, 0, "", err
	}
	fits = "fits"
	if slices.Max(q.MemoryBytes) > b.C.MemoryBytes(0) {
		fits = "OOM"
	}
	return q.SamplesPerSecond, float64(q.MemoryBytes[0]+q.MemoryBytes[1]) / 2 / 1e9, fits, nil
}

func dappleTable5(ctx context.Context, _ table.Options, t *table.Table) error {
	t.Source = "DAPPLE (PPoPP'21), Table 5"
	t.Notes = append(t.Notes, "two V100 of Config-B, micro-batches of 2, Adam; memory is the mean of both devices' "+
		"peaks, in GB; OOM: more than 16 GiB on one of them; RC keeps a stage's inputs alone",
		"three times: a micro-batch of GPipe beside half a one more of DAPPLE's mean, 12.1 - 10.6 GB at M = 2, makes 3 GB "+
			"of a micro-batch on a device; described is 1 GB",
		"kernel by kernel: launches, small matrices and what each kernel saves, by cluster/types.yaml and package "+
			"profile/kernels")
	b, err := bench.New(table.Options{}, "bert-48", nil, "dapple-b:2")
	if err != nil {
		return err
	}
	b.A.Optimizer, b.A.States = "adam", 2
	byKernels, err := b.BySize()
	if err != nil {
		return err
	}
	others := []struct {
		what string
		b    *bench.Bench
	}{{"devices compute at 0.65 of what is described", b.Slowed(.65)}, {"kernel by kernel", byKernels},
		{"layers save three times what is described", b.Saving(3)},
		{"devices compute at 0.75, layers save three times what is described", b.Slowed(.75).Saving(3)}}
	for _, w := range []gpipeRow{
		{"GPipe", "afab", false, 2, 5.10, 12.1}, {"GPipe", "afab", false, 3, 0, 0},
		{"GPipe + RC", "afab", true, 2, 4.00, 9.9}, {"GPipe + RC", "afab", true, 5, 5.53, 13.2},
		{"GPipe + RC", "afab", true, 8, 0, 0},
		{"DAPPLE", "1f1b", false, 2, 5.10, 10.6}, {"DAPPLE", "1f1b", false, 8, 7.60, 10.6},
		{"DAPPLE", "1f1b", false, 16, 8.18, 10.6},
		{"DAPPLE + RC", "1f1b", true, 2, 4.24, 8.5}, {"DAPPLE + RC", "1f1b", true, 8, 6.23, 8.5},
		{"DAPPLE + RC", "1f1b", true, 16, 6.77, 8.5},
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		rate, memory, fits, err := w.on(b)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("%s, M = %d", w.name, w.micros)
		at := len(t.Rows)
		t.Word(what+", memory", map[bool]string{true: "fits", false: "OOM"}[w.rate > 0], fits, "")
		if w.rate > 0 {
			t.Number(what+", samples/s", w.rate, rate, "%.2f", "").In("samples/s")
			t.Number(what+", GB", w.memory, memory, "%.1f", "").In("GB")
		}
		for _, other := range others {
			rate, memory, fits, err := w.on(other.b)
			if err != nil {
				return err
			}
			t.Rows[at].AblateWord(other.what, fits)
			if w.rate > 0 {
				t.Rows[at+1].Ablate(other.what, rate, "%.2f")
				t.Rows[at+2].Ablate(other.what, memory, "%.1f")
			}
		}
	}
	return nil
}
