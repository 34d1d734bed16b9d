package dapple

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
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
	rate, memory   float64 // samples/s and GB; 0 means out of memory
}

// pipeline holds what is assumed for Table 5 where the paper says nothing.
type pipeline struct {
	speed     float64 // fraction of the described speed; 0 means all of it
	bySize    bool    // costs are computed kernel by kernel
	saving    float64 // factor for the bytes that layers save; 0 means 1
	besides   bool    // a batch takes time besides its micro-batches (see the function besides)
	masks     bool    // recompute keeps what dropout multiplies (see maskBytes)
	lastKeeps bool    // the last stage under 1F1B recomputes nothing
}

var otherPipelines = []table.Switch[pipeline]{
	{What: "devices compute at 0.65 of what is described", To: func(p *pipeline) { p.speed = .65 }},
	{What: "devices compute at 0.75 of what is described", To: func(p *pipeline) { p.speed = .75 }},
	{What: "kernel by kernel", To: func(p *pipeline) { p.bySize = true }},
	{What: "layers save twice what is described", To: func(p *pipeline) { p.saving = 2 }},
	{What: "layers save three times what is described", To: func(p *pipeline) { p.saving = 3 }},
	{What: "a batch takes time besides its micro-batches, as the paper's rates have it",
		To: func(p *pipeline) { p.besides = true }},
	{What: "recompute keeps what dropout multiplies", To: func(p *pipeline) { p.masks = true }},
	{What: "the last stage of DAPPLE recomputes nothing", To: func(p *pipeline) { p.lastKeeps = true }},
}

// on returns the bench under these assumptions.
func (p pipeline) on(b *bench.Bench) (*bench.Bench, error) {
	if p.speed > 0 {
		b = b.Slowed(p.speed)
	}
	if p.saving > 0 {
		b = b.Saving(p.saving)
	}
	if p.bySize {
		return b.BySize()
	}
	return b, nil
}

// besides returns how many seconds of a batch's time its micro-batches do not explain, according to the paper's rates.
// With M micro-batches, two even stages take M+1 times the time of one micro-batch. For each system with more than one
// M, besides fits a line to the batch's time over M+1 by least squares. The value of this line at M+1 = 0 is the
// unexplained time. The result is the mean over these systems.
func besides(rows []gpipeRow) float64 {
	type line struct{ n, x, y, xx, xy float64 }
	lines := map[string]*line{}
	for _, r := range rows {
		if r.rate == 0 {
			continue
		}
		l := lines[r.name]
		if l == nil {
			l = &line{}
			lines[r.name] = l
		}
		x, y := float64(r.micros+1), float64(2*r.micros)/r.rate
		l.n, l.x, l.y, l.xx, l.xy = l.n+1, l.x+x, l.y+y, l.xx+x*x, l.xy+x*y
	}
	var all []float64
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		if l := lines[name]; l.n > 1 {
			slope := (l.n*l.xy - l.x*l.y) / (l.n*l.xx - l.x*l.x)
			all = append(all, (l.y-slope*l.x)/l.n)
		}
	}
	return stats.Mean(all)
}

// maskBytes returns the size of the tensors that dropout multiplies in a stage's layers, for one micro-batch. Dropout
// applies to each attention probability, and to each output of an attention block and of the perceptron after it.
// TensorFlow 1.12 divides the input by the keep probability, and multiplies the quotient by a mask. The quotient and
// the mask take four bytes for each number.
func maskBytes(b *bench.Bench, s plan.Stage, microBatch int) int64 {
	var numbers int
	for _, l := range b.M.Layers[s.FirstLayer : s.LastLayer+1] {
		out := l.Outputs[0].Shape
		switch l.Kind {
		case "encoder_attention":
			numbers += l.Int("heads")*out[0]*out[0] + out[0]*out[1]
		case "mlp":
			numbers += out[0] * out[1]
		}
	}
	return int64(2 * 4 * microBatch * numbers)
}

// on simulates the row on b under the assumptions p. It returns the samples per second, the mean of both devices' peaks
// in GB, and "fits" or "OOM".
func (w gpipeRow) on(b *bench.Bench, p pipeline, besidesS float64) (rate, memory float64, fits string, err error) {
	if b, err = p.on(b); err != nil {
		return 0, 0, "", err
	}
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
		if w.recompute && !(p.lastKeeps && w.schedule == "1f1b" && i == len(pl.Stages)-1) {
			pl.Stages[i].Recompute = plan.KeepInput
		}
	}
	q, err := b.Predict(pl)
	if err != nil {
		return 0, 0, "", err
	}
	if p.masks {
		for i, s := range pl.Stages {
			if s.Recompute.Again() { // one micro-batch's masks are already in what a recomputed forward saves
				q.MemoryBytes[i] += int64(w.held(i)-1) * maskBytes(b, s, 2)
			}
		}
	}
	fits = "fits"
	if slices.Max(q.MemoryBytes) > b.C.MemoryBytes(0) {
		fits = "OOM"
	}
	rate = q.SamplesPerSecond
	if p.besides {
		rate = 1 / (1/rate + besidesS/float64(2*w.micros))
	}
	return rate, float64(q.MemoryBytes[0]+q.MemoryBytes[1]) / 2 / 1e9, fits, nil
}

// held returns how many micro-batches a stage of a two-stage pipeline holds at most between their forward and backward.
func (w gpipeRow) held(stage int) int {
	if w.schedule == "afab" {
		return w.micros
	}
	return min(2-stage, w.micros)
}

var gpipeRows = []gpipeRow{
	{"GPipe", "afab", false, 2, 5.10, 12.1}, {"GPipe", "afab", false, 3, 0, 0},
	{"GPipe + RC", "afab", true, 2, 4.00, 9.9}, {"GPipe + RC", "afab", true, 5, 5.53, 13.2},
	{"GPipe + RC", "afab", true, 8, 0, 0},
	{"DAPPLE", "1f1b", false, 2, 5.10, 10.6}, {"DAPPLE", "1f1b", false, 8, 7.60, 10.6},
	{"DAPPLE", "1f1b", false, 16, 8.18, 10.6},
	{"DAPPLE + RC", "1f1b", true, 2, 4.24, 8.5}, {"DAPPLE + RC", "1f1b", true, 8, 6.23, 8.5},
	{"DAPPLE + RC", "1f1b", true, 16, 6.77, 8.5},
}

func dappleTable5(ctx context.Context, _ table.Options, t *table.Table) error {
	besidesS := besides(gpipeRows)
	t.Source = "DAPPLE (PPoPP'21), Table 5"
	t.Notes = append(t.Notes, "two V100 of Config-B, micro-batches of 2, Adam; memory is the mean of both devices' "+
		"peaks, in GB; OOM: more than 16 GiB on one of them; RC keeps a stage's inputs alone",
		"twice: GPipe holds half a micro-batch more than DAPPLE, the mean of both devices, and 12.1 - 10.6 GB at M = 2 "+
			"makes 3.0 GB of a micro-batch on a device; described are 1.7",
		"kernel by kernel: launches, small matrices and what each kernel saves, by cluster/types.yaml and package "+
			"profile/kernels",
		fmt.Sprintf("besides: a line through the times of the rows of each system with several M, over M + 1, leaves %.2f s "+
			"of a batch at none (updates, and what TensorFlow does once a batch)", besidesS),
		"what dropout multiplies: a recomputed forward is the same one if the masks are kept; TensorFlow's dropout keeps "+
			"both of its factors. Under 1F1B the last stage's backward follows its forward at once: it recomputes nothing")
	b, err := bench.New(table.Options{}, "bert-48", nil, "dapple-b:2")
	if err != nil {
		return err
	}
	b.A.Optimizer, b.A.States = "adam", 2
	all := table.Combine(pipeline{}, otherPipelines, 4)
	table.Tries(t, all)
	for _, w := range gpipeRows {
		if err := ctx.Err(); err != nil {
			return err
		}
		rate, memory, fits, err := w.on(b, pipeline{}, besidesS)
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
		for _, other := range all {
			rate, memory, fits, err := w.on(b, other.Assumed, besidesS)
			if err != nil {
				return err
			}
			t.Rows[at].AblateWord(other.What, fits)
			if w.rate > 0 {
				t.Rows[at+1].Ablate(other.What, rate, "%.2f")
				t.Rows[at+2].Ablate(other.What, memory, "%.1f")
			}
		}
	}
	return nil
}
