// Package dapple registers the experiments of DAPPLE's tables and figures.
//
// In: an experiment's Options. Out: its Table. Refused: what the planners refuse.
package dapple

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
)

func init() {
	table.Register("dapple-table4", "DAPPLE Table 4: plans on 16 devices",
		table.Uses{Profiles: true, Planners: []string{"dapple"}, Script: scriptSettings}, dappleTable4)
	table.Register("dapple-fig11", "DAPPLE Figure 11: speedups of pipeline and data parallelism over batches",
		table.Uses{Profiles: true}, dappleFigure11)
	table.Register("dapple-fig12",
		"DAPPLE Figure 12: speedups of Table 6's plans by simulation, 2x8, and of our plans, 4x8",
		table.Uses{}, dappleFigure12)
	table.Register("dapple-table7", "DAPPLE Table 7: the most layers of BERT with recompute", table.Uses{}, dappleTable7)
}

type dappleRow struct {
	Workload   string            `yaml:"workload"`
	Batch      int               `yaml:"batch"`
	BatchUsed  int               `yaml:"batch_used"` // where the batch does not divide into micro-batches
	MicroBatch int               `yaml:"micro_batch"`
	Plans      map[string]string `yaml:"plans"`
	Planner    string            `yaml:"planner"`
	Cuts       []string          `yaml:"cuts"`
	Replicas   []int             `yaml:"replicas"`
	Straight   bool              `yaml:"straight"`
	Speedup    float64           `yaml:"speedup"`
	States     []int             `yaml:"states"`   // last of each stage but the last, in the published profile
	Artifact   map[string]string `yaml:"artifact"` // what the published planner has to be told

	Counts string             `yaml:"counts"` // the names of the layers that split positions count, as an expression
	Splits map[string]string  `yaml:"splits"`
	ACR    map[string]float64 `yaml:"acr"`
}

type dappleTable struct {
	Source  string            `yaml:"source"`
	Rows    []dappleRow       `yaml:"rows"`
	ConfigC map[string]string `yaml:"config_c"`
}

// colons is a plan as DAPPLE writes it.
func colons(pl *plan.Plan) string {
	if len(pl.Stages) == 1 {
		return "DP"
	}
	return strings.ReplaceAll(bench.Configuration(pl), "-", ":")
}

func dappleTable4(ctx context.Context, o table.Options, t *table.Table) error {
	var paper dappleTable
	if err := table.Read(files, "table4", &paper); err != nil {
		return err
	}
	t.Source = paper.Source
	t.Notes = append(t.Notes, "artifact: the published search, told what its examples tell it; paper: the paper's "+
		"equations")
	for _, r := range paper.Rows {
		for _, preset := range []string{"dapple-a", "dapple-b", "dapple-c"} {
			if err := ctx.Err(); err != nil {
				return err
			}
			b, err := bench.New(o, r.Workload, nil, preset)
			if err != nil {
				return err
			}
			p, err := b.Profile(bench.SizesFor(r.Batch, r.MicroBatch)...)
			if err != nil {
				return err
			}
			told := r.Artifact
			if preset == "dapple-c" {
				told = maps.Clone(told)
				maps.Copy(told, paper.ConfigC)
			}
			formulas := []string{o.Formula}
			if o.Formula == "" {
				formulas = []string{"artifact", "paper"}
				if b.Given != nil {
					formulas = formulas[:1]
				}
			}
			for _, formula := range formulas {
				asked := o
				asked.Formula = formula
				pl, err := dapple(ctx, asked, b, p, r.Batch, told)
				if err := table.OfSettings(err); err != nil {
					return err
				}
				ours, why := "none", ""
				switch {
				case err != nil:
					why = err.Error()
				case formula == "paper":
					ours, why = colons(pl), "equations (1) to (5) searched in full, with "+b.Source()+" costs: more stages and "+
						"uneven ones are fast by them; the published code knows only two stages, as many as devices, or one"
				default:
					ours, why = colons(pl), "the published search with "+b.Source()+" costs, which weigh layers otherwise than the "+
						"authors' profiles"
				}
				what := fmt.Sprintf("%s (%d) on %s, %s", r.Workload, r.Batch, preset, formula)
				t.Word(what, r.Plans[preset], ours, why)
				if pl != nil && b.Given == nil { // whose layers have other names
					if err := cuts(t, b, r, preset, what, pl); err != nil {
						return err
					}
				}
			}
			if b.Given != nil {
				continue
			}
			if err := printedACR(t, b, r, preset); err != nil {
				return err
			}
		}
	}
	return nil
}

// speedup of a plan is one device that runs all micro-batches in sequence over the plan's
// simulated step (DAPPLE §6.3).
func speedup(b *bench.Bench, pl *plan.Plan) (float64, error) {
	sum, err := b.Run(pl)
	if err != nil {
		return 0, err
	}
	_, costs, err := b.Costs(pl.MicroBatch)
	if err != nil {
		return 0, err
	}
	return float64(pl.MicroBatches) * bench.ComputeS(costs) / sum.StepS, nil
}

func dappleFigure12(ctx context.Context, _ table.Options, t *table.Table) error {
	var paper dappleTable
	if err := table.Read(files, "table6", &paper); err != nil {
		return err
	}
	t.Source = paper.Source + "; values from the figure's text, by the order in which they stand"
	t.Notes = append(t.Notes, "the paper's own plans under millrace's simulator with policy P_B, always on analytic "+
		"costs, whose layers the cuts name; replicas split micro-batches, which become smaller and, on a V100, no slower a "+
		"sample in these descriptions")
	for _, r := range paper.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := bench.New(table.Options{}, r.Workload, nil, "dapple-a")
		if err != nil {
			return err
		}
		batch := r.Batch
		if r.BatchUsed > 0 {
			batch = r.BatchUsed
		}
		var pl *plan.Plan
		if r.Straight {
			pl, err = b.Straight(len(b.C.Devices), r.MicroBatch, batch/r.MicroBatch)
		} else {
			var last []int
			if last, err = b.Behind(r.Cuts); err != nil {
				return err
			}
			pl, err = b.Stages(last, r.Replicas, r.MicroBatch, batch/r.MicroBatch)
		}
		if err != nil {
			return err
		}
		if err := bench.As(pl, "pb"); err != nil {
			return err
		}
		ours, err := speedup(b, pl)
		if err != nil {
			return err
		}
		why := "transfers of all replicas share a server's one port here; the paper's estimate gives each its own " +
			"bandwidth, and its bars follow its estimate within 3 %"
		if r.Workload == "vgg19" {
			why = "an analytic V100 takes 1.7 times as long for VGG-19 as the paper's profile, so that transfers weigh less"
		}
		if r.Planner == "pipedream" {
			why = "the paper does not print micro-batch sizes for these"
		}
		t.Number(fmt.Sprintf("%s, %s's plan", r.Workload, r.Planner), r.Speedup, ours, "%.1f", why)
	}
	return figure12OnFour(ctx, t, paper.Rows)
}

// figure12OnFour is the figure's other half, four servers of eight: plans by equations (1)
// to (5), simulated, since the paper prints neither plans nor values.
func figure12OnFour(ctx context.Context, t *table.Table, rows []dappleRow) error {
	t.Notes = append(t.Notes, "on 4x8 the paper prints neither plans nor numbers; these are the planner's plans by "+
		"equations (1) to (5) for the batches of 2x8")
	planner, err := plan.LookupPlanner("dapple")
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.Planner != "dapple" {
			continue
		}
		b, err := bench.New(table.Options{}, r.Workload, nil, "dapple-a:4x8")
		if err != nil {
			return err
		}
		p, err := b.Profile(bench.SizesFor(r.Batch, r.MicroBatch)...)
		if err != nil {
			return err
		}
		pl, err := planner.Plan(ctx, table.Options{}.Request("dapple", p, b.C, r.Batch))
		if err != nil {
			return err
		}
		if len(pl.Stages) > 1 {
			if err := bench.As(pl, "pb"); err != nil {
				return err
			}
		}
		ours, err := speedup(b, pl)
		if err != nil {
			return err
		}
		t.Number(fmt.Sprintf("%s on 4x8, %s", r.Workload, colons(pl)), 0, ours, "%.1f", "")
	}
	return nil
}

func dappleFigure11(ctx context.Context, o table.Options, t *table.Table) error {
	t.Source = "DAPPLE (PPoPP'21), Figure 11 and section 6.3: drawn only; the text gives the mean gain over overlapped " +
		"data parallelism at a batch of 128"
	t.Notes = append(t.Notes, "hybrid: the plan of Table 4, cut where its slowest stage is fastest, simulated; DP: "+
		"accumulation over micro-batches, the last one's backward pass overlapped or not; rows without a number of the "+
		"paper are at global batches of 64, 128, 256, 512 and 1024; DP of AmoebaNet-36 does not fit, and is drawn by "+
		"nobody")
	var paper dappleTable
	if err := table.Read(files, "table4", &paper); err != nil {
		return err
	}
	gain := map[string]float64{"dapple-a": 1.71, "dapple-b": 1.37, "dapple-c": 1.79}
	for _, preset := range []string{"dapple-a", "dapple-b", "dapple-c"} {
		batches := []int{64, 128, 256, 512, 1024}
		best := make([][]float64, len(batches)) // gain of the better one over overlapped DP, by batch and model
		var without []float64                   // GNMT-16
		for _, r := range paper.Rows {
			if err := ctx.Err(); err != nil {
				return err
			}
			if r.Workload == "resnet50" {
				continue
			}
			b, err := bench.New(o, r.Workload, nil, preset)
			if err != nil {
				return err
			}
			what := fmt.Sprintf("%s on %s ", r.Workload, preset)
			gains, err := alongBatches(t, b, what, r.Plans[preset], batches)
			if err != nil {
				return err
			}
			if r.Workload == "amoebanet-36" { // which has no DP
				continue
			}
			for k, g := range gains {
				best[k] = append(best[k], g)
			}
			if r.Workload != "gnmt-16" {
				without = append(without, gains[1])
			} else if preset == "dapple-c" {
				row := t.Number(what+"gain of the best over DP overlap", 2.32, gains[1], "%.2f", "the batch is of 128 samples")
				row.Ratio()
				for k, batch := range batches[2:] {
					row.Ablate(fmt.Sprintf("the batch is %d", batch), gains[k+2], "%.2f")
				}
			}
		}
		row := t.Number(fmt.Sprintf("%s, mean gain of the best over DP overlap", preset), gain[preset], stats.Mean(best[1]),
			"%.2f", "GNMT-16 is among the four")
		row.Ratio().In("mean gain")
		row.Ablate("GNMT-16 is left out", stats.Mean(without), "%.2f")
		for k, batch := range batches[2:] {
			row.Ablate(fmt.Sprintf("the batch is %d", batch), stats.Mean(best[k+2]), "%.2f")
		}
	}
	return nil
}

// threeWays is the speedups at a global batch of a plan of Table 4 and of data parallelism
// without and with overlap, on all devices.
func threeWays(b *bench.Bench, shape string, batch int) (hybrid, plain, overlapped float64, err error) {
	n := len(b.C.Devices)
	each := batch / n // samples of one device; accumulation does not change a linear cost
	_, whole, err := b.Costs(each)
	if err != nil {
		return 0, 0, 0, err
	}
	step, compute, err := b.WaitFree(n, each)
	if err != nil {
		return 0, 0, 0, err
	}
	p, _, err := b.Costs(each)
	if err != nil {
		return 0, 0, 0, err
	}
	alone := float64(n) * bench.ComputeS(whole)
	overlapped = alone / step
	plain = alone / (compute + b.AllReduceS(bench.Firsts(n), bench.ParameterBytes(p)))
	if shape == "DP" {
		return overlapped, plain, overlapped, nil
	}
	replicas := bench.Ones(n)
	if shape != "straight" {
		var first, second int
		if _, err := fmt.Sscanf(shape, "%d:%d", &first, &second); err != nil {
			return 0, 0, 0, fmt.Errorf("plan %q: %w", shape, err)
		}
		replicas = []int{first, second}
	}
	micro := 8
	if shape == "straight" {
		micro = 2
	}
	s, err := b.BestSplit(replicas, micro)
	if err != nil {
		return 0, 0, 0, err
	}
	pl, err := b.Stages(s.Last, replicas, micro, batch/micro)
	if err != nil {
		return 0, 0, 0, err
	}
	sum, err := b.Run(pl)
	if err != nil {
		return 0, 0, 0, err
	}
	return alone / sum.StepS, plain, overlapped, nil
}

func dappleTable7(ctx context.Context, o table.Options, t *table.Table) error {
	var paper struct {
		Source string `yaml:"source"`
		Rows   []struct {
			Devices int `yaml:"devices"`
			Layers  int `yaml:"layers"`
		} `yaml:"rows"`
	}
	if err := table.Read(files, "table7", &paper); err != nil {
		return err
	}
	t.Source = paper.Source
	t.Notes = append(t.Notes, "Adam: 16 bytes a parameter; micro-batches of 2 with 384 positions (Table 1's profile), "+
		"two for each stage; a stage keeps its inputs and recomputes the rest")
	for _, r := range paper.Rows {
		most, err := bench.Largest(ctx, 1, func(layers int) (bool, error) {
			b, err := bench.New(o, "bert-48", map[string]any{"layers": max(layers, r.Devices)}, "dapple-a:1x8")
			if err != nil {
				return false, err
			}
			b.A.Optimizer, b.A.States = "adam", 2
			return b.Fits("1f1b", r.Devices, 2, 2*r.Devices, true)
		})
		if err != nil {
			return err
		}
		t.Number(fmt.Sprintf("layers on %d V100", r.Devices), float64(r.Layers), float64(most), "%.0f",
			"the paper leaves room that TensorFlow needs and does not say how much; activations of a recomputed stage are the "+
				"description's")
	}
	return nil
}
