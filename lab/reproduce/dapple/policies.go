package dapple

import (
	"context"
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
)

func init() {
	table.Register("dapple-table3",
		"DAPPLE Table 3: policy P_B over P_A on two servers of Config-A", table.Uses{}, dappleTable3)
	table.Register("dapple-table5",
		"DAPPLE Table 5: GPipe and DAPPLE on BERT-48, two stages, Config-B", table.Uses{}, dappleTable5)
}

func dappleTable3(ctx context.Context, _ table.Options, t *table.Table) error {
	t.Source = "DAPPLE (PPoPP'21), Table 3"
	t.Notes = append(t.Notes, "two stages of 8 devices as in Table 4, cut where the slowest stage is fastest; VGG-19, "+
		"for which Table 4 has data parallelism, as in Table 6, 14:2; micro-batches of Table 1 on each replica of the first "+
		"stage, 32 of them; both policies simulated")
	for _, w := range []struct {
		name     string
		micro    int
		replicas []int
		faster   float64
	}{{"bert-48", 2, []int{8, 8}, 1}, {"xlnet-36", 1, []int{8, 8}, 1.02}, {"vgg19", 32, []int{14, 2}, 1.1},
		{"gnmt-16", 64, []int{8, 8}, 1.31}} {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := bench.New(table.Options{}, w.name, nil, "dapple-a:2x8")
		if err != nil {
			return err
		}
		s, err := b.BestSplit(w.replicas, w.micro)
		if err != nil {
			return err
		}
		faster := func() (float64, error) {
			var rates [2]float64
			for i, policy := range []string{"1f1b", "pb"} {
				pl, err := b.Stages(s.Last, w.replicas, w.micro*w.replicas[0], 32)
				if err != nil {
					return 0, err
				}
				if err := bench.As(pl, policy); err != nil {
					return 0, err
				}
				q, err := b.Predict(pl)
				if err != nil {
					return 0, err
				}
				rates[i] = q.SamplesPerSecond
			}
			return rates[1] / rates[0], nil
		}
		ours, err := faster()
		if err != nil {
			return err
		}
		r := t.Number(w.name+", P_B over P_A", w.faster, ours, "%.2f", "transfers take what the wires do")
		r.In("Table 3")
		for _, part := range []float64{.5, .25, .125} {
			for i := range b.C.Levels {
				b.C.Levels[i].BandwidthBytesPerSecond *= .5
			}
			v, err := faster()
			if err != nil {
				return err
			}
			r.Ablate(fmt.Sprintf("transfers at %g of the wires' rate", part), v, "%.2f")
		}
	}
	return nil
}

func dappleTable5(ctx context.Context, _ table.Options, t *table.Table) error {
	t.Source = "DAPPLE (PPoPP'21), Table 5"
	t.Notes = append(t.Notes, "two V100 of Config-B, micro-batches of 2, Adam; memory is the mean of both devices' "+
		"peaks, in GB; OOM: more than 16 GiB on one of them; RC keeps a stage's inputs alone")
	b, err := bench.New(table.Options{}, "bert-48", nil, "dapple-b:2")
	if err != nil {
		return err
	}
	b.A.Optimizer, b.A.States = "adam", 2
	s, err := b.BestSplit(bench.Ones(2), 2)
	if err != nil {
		return err
	}
	for _, w := range []struct {
		name, schedule string
		recompute      bool
		micros         int
		rate, memory   float64 // 0: out of memory
	}{
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
		pl, err := b.Stages(s.Last, bench.Ones(2), 2, w.micros)
		if err != nil {
			return err
		}
		if err := bench.As(pl, w.schedule); err != nil {
			return err
		}
		for i := range pl.Stages {
			if w.recompute {
				pl.Stages[i].Recompute = plan.KeepInput
			}
		}
		q, err := b.Predict(pl)
		if err != nil {
			return err
		}
		var sum, most int64
		for _, bytes := range q.MemoryBytes {
			sum, most = sum+bytes, max(most, bytes)
		}
		what := fmt.Sprintf("%s, M = %d", w.name, w.micros)
		fits := map[bool]string{true: "fits", false: "OOM"}
		t.Word(what+", memory", fits[w.rate > 0], fits[most <= b.C.MemoryBytes(0)],
			"activations and workspaces are the description's, and what TensorFlow needs besides is not counted")
		if w.rate == 0 {
			continue
		}
		r := t.Number(what+", samples/s", w.rate, q.SamplesPerSecond, "%.2f", "a V100 by roofline")
		r.In("samples/s")
		for _, part := range []float64{.8, .65} {
			q, err := b.Slowed(part).Predict(pl)
			if err != nil {
				return err
			}
			r.Ablate(fmt.Sprintf("devices compute at %g of what is described", part), q.SamplesPerSecond, "%.2f")
		}
		t.Number(what+", GB", w.memory, float64(sum)/2/1e9, "%.1f", "as for what fits").In("GB")
	}
	return nil
}

// alongBatches adds a row for each way to train of the speed-ups over global batches, which Figure 11 draws, and
// returns by batch what the better of hybrid and overlapped data parallelism gains over the latter.
func alongBatches(t *table.Table, b *bench.Bench, what, shape string, batches []int) (gains []float64, err error) {
	ways := []struct {
		name string
		all  []string
	}{{name: "hybrid"}, {name: "DP no overlap"}, {name: "DP overlap"}}
	for _, batch := range batches {
		hybrid, plain, overlapped, err := threeWays(b, shape, batch)
		if err != nil {
			return nil, err
		}
		for i, v := range []float64{hybrid, plain, overlapped} {
			ways[i].all = append(ways[i].all, fmt.Sprintf("%.1f", v))
		}
		gains = append(gains, max(hybrid, overlapped)/overlapped)
	}
	for _, w := range ways {
		t.Rows = append(t.Rows, table.Row{What: what + w.name, Paper: "drawn", Ours: strings.Join(w.all, " "),
			Difference: "-"})
	}
	return gains, nil
}
