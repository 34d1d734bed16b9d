// Package bapipe registers the experiments of BaPipe's tables and figures.
//
// In: an experiment's Options. Out: its Table. Refused: what the planners refuse.
package bapipe

import (
	"context"
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim"
)

func init() {
	table.Register("bapipe-table1", "BaPipe Table I: 1F1B-AS and FBP-AS on uniform stages, transfers overlapped",
		table.Uses{}, bapipeTable1)
	table.Register("bapipe-table2", "BaPipe Table II: 1F1B-SNO and 1F1B-SO on uniform stages, time for each transfer",
		table.Uses{}, bapipeTable2)
	table.Register("bapipe-table3", "BaPipe Table III: speedup over data parallelism on V100s over PCIe",
		table.Uses{Profiles: true, Planners: []string{"bapipe", "pipedream"},
			Fixed: []string{"dp", "chains"}}, bapipeTable3)
	table.Register("bapipe-table4", "BaPipe Table IV: the most layers of GNMT-L", table.Uses{}, bapipeTable4)
	table.Register("bapipe-table5", "BaPipe Table V: the boards of the presets", table.Uses{}, bapipeTable5)
	table.Register("bapipe-table6", "BaPipe Table VI: ResNet-50 on FPGA boards, speedup over data parallelism",
		table.Uses{Planners: []string{"bapipe"}, Fixed: []string{"dp", "chains", "schedule"}}, bapipeTable6)
}

// uniform simulates a family on n stages that take F = 1 and B = 2, with SR for a transfer.
func uniform(order string, n, m int, sr float64) (sim.Summary, error) {
	s := schedule.Settings{MicroBatches: m}
	for w := range n {
		s.Placement = append(s.Placement, []int{w})
	}
	p, err := family.Generate(order, s)
	if err != nil {
		return sim.Summary{}, err
	}
	if p, err = lower.Lower(p, lower.Options{}); err != nil {
		return sim.Summary{}, err
	}
	_, sum, err := sim.Run(p, sim.Uniform(n, 1, 2, sr), sim.Options{})
	return sum, err
}

func bapipeTable1(ctx context.Context, _ table.Options, t *table.Table) error {
	t.Source = "BaPipe, Table I, with F = 1 and B = 2"
	for _, order := range []string{"1f1b-as", "fbp-as"} {
		features := 1.0
		if order == "fbp-as" {
			features = 2
		}
		for _, n := range []int{2, 4, 8} {
			for _, m := range []int{n, 4 * n} {
				if err := ctx.Err(); err != nil {
					return err
				}
				sum, err := uniform(order, n, m, 0)
				if err != nil {
					return err
				}
				N, M := float64(n), float64(m)
				what := fmt.Sprintf("%s N=%d M=%d ", order, n, m)
				t.Number(what+"time", (M+N-1)*3, sum.StepS, "%.4g", "")
				t.Number(what+"bubble", (N-1)/(M+N-1), sum.Bubble, "%.4f", "")
				t.Number(what+"features of accelerator 1", min(features*N, M), float64(sum.PeakActivations[0]), "%g",
					"more than M micro-batches there never are")
			}
		}
	}
	return nil
}

func bapipeTable2(ctx context.Context, _ table.Options, t *table.Table) error {
	t.Source = "BaPipe, Table II, with F = 1, B = 2 and SR = 0.5"
	const sr = 0.5
	for _, order := range []string{"1f1b", "so"} {
		for _, n := range []int{2, 4, 8} {
			for _, m := range []int{n, 2*n + 1, 4 * n} {
				if err := ctx.Err(); err != nil {
					return err
				}
				sum, err := uniform(order, n, m, sr)
				if err != nil {
					return err
				}
				N, M := float64(n), float64(m)
				paper, label, features := (M+N-1)*3+(N-1)*2*sr, "1F1B-SO", 2*N
				if order == "1f1b" {
					paper, label, features = (M+N-1)*3+(N+M-2-math.Ceil((M-1)/N))*2*sr, "1F1B-SNO", N
				}
				what := fmt.Sprintf("%s N=%d M=%d ", label, n, m)
				t.Number(what+"time", paper, sum.StepS, "%.4g", "")
				t.Number(what+"bubble", 1-M*3/paper, sum.Bubble, "%.4f", "")
				why := "the last-but-one start of SO needs 2(N-1)+1 forwards, not 2N, to hide the transfers"
				if order == "1f1b" {
					why = ""
				}
				t.Number(what+"features of accelerator 1", min(features, M), float64(sum.PeakActivations[0]), "%g", why)
			}
		}
	}
	return nil
}

// explored is BaPipe's plan in one chain for this micro-batch size, 0 for any, and the simulated time of a sample. dp says
// whether data parallelism may win.
func explored(ctx context.Context, b *bench.Bench, o table.Options, batch, microBatch int, dp string) (
	*plan.Plan, float64, error,
) {
	planner, err := plan.LookupPlanner("bapipe")
	if err != nil {
		return nil, 0, err
	}
	sizes := []int{microBatch}
	if microBatch == 0 {
		sizes = sizes[:0]
		for n := 1; n <= batch/len(b.C.Devices); n *= 2 {
			sizes = append(sizes, n)
		}
	}
	p, err := b.Profile(sizes...)
	if err != nil {
		return nil, 0, err
	}
	r := o.Request("bapipe", p, b.C, batch)
	r.MicroBatch = microBatch
	r.Set["dp"], r.Set["chains"] = dp, "1"
	pl, err := planner.Plan(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	sum, err := b.Run(pl)
	return pl, sum.StepS / float64(batch), err
}

// pipelined is the time of a sample in a straight pipeline over n devices.
func pipelined(b *bench.Bench, order string, n, batch, microBatches int) (float64, error) {
	size := batch / microBatches
	pl, err := b.Straight(n, size, microBatches)
	if err != nil {
		return 0, err
	}
	if err := bench.As(pl, order); err != nil {
		return 0, err
	}
	sum, err := b.Run(pl)
	return sum.StepS / float64(size*microBatches), err
}

func bapipeTable4(ctx context.Context, o table.Options, t *table.Table) error {
	var paper struct {
		Source  string `yaml:"source"`
		Devices []int  `yaml:"devices"`
		DP      []int  `yaml:"dp"`
		GPipe   []int  `yaml:"gpipe"`
		BaPipe  []int  `yaml:"bapipe"`
	}
	if err := table.Read(files, "table4", &paper); err != nil {
		return err
	}
	t.Source = paper.Source
	t.Notes = append(t.Notes, "batch 32 a GPU, M = 2 N, Adam, sentences of 50 positions (memory must hold the longest), "+
		"no recompute; stages whose fullest is emptiest; PipeDream's row is data parallelism's in the paper")
	const why = "context, cuDNN workspace and fragmentation of 2019's PyTorch are not in the description, nor the " +
		"optimizer's temporaries; the paper does not say which optimizer nor how long sentences are"
	fit := func(order string, n int) (int, error) {
		return bench.Largest(ctx, 2, func(layers int) (bool, error) {
			b, err := bench.New(o, "gnmt", map[string]any{"layers": layers, "context": 50}, "bapipe-8xv100")
			if err != nil {
				return false, err
			}
			b.A.Optimizer, b.A.States = "adam", 2
			if n == 1 {
				return b.Fits(order, 1, 32, 1, false)
			}
			return b.Fits(order, n, 16, 2*n, false)
		})
	}
	alone, err := fit("1f1b", 1)
	if err != nil {
		return err
	}
	for i, n := range paper.Devices {
		gpipe, ours := alone, alone
		if n > 1 {
			if gpipe, err = fit("afab", n); err != nil {
				return err
			}
			if ours, err = fit("1f1b", n); err != nil {
				return err
			}
		}
		for _, k := range []struct {
			name        string
			paper, ours int
		}{{"DP", paper.DP[i], alone}, {"GPipe", paper.GPipe[i], gpipe}, {"BaPipe", paper.BaPipe[i], ours}} {
			t.Number(fmt.Sprintf("%s on %d V100, layers", k.name, n), float64(k.paper), float64(k.ours), "%.0f", why)
		}
	}
	return nil
}
