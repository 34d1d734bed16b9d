package avgpipe

import (
	"context"
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

func init() {
	table.Register("avgpipe-fig11", "AvgPipe Figures 11 to 13: each baseline against AvgPipe held to its memory",
		table.Uses{}, avgpipeFigure11)
	table.Register("avgpipe-fig17",
		"AvgPipe Figure 17: 1F1B, advance forward propagation and AFAB", table.Uses{}, avgpipeFigure17)
}

// avgpipeCompared is a training and what sections 7.1.1 and 7.2 say of it; 0 is not printed.
type avgpipeCompared struct {
	Training      avgpipeTraining `yaml:",inline"`
	MicroBatches  int             `yaml:"micro_batches"` // of the baselines: the number of GPUs, up to a divisor
	DP            float64         `yaml:"dp"`            // AvgPipe's speedup over data parallelism at its memory
	GPipe         float64         `yaml:"gpipe"`
	PipeDream     float64         `yaml:"pipedream"`
	BW2           float64         `yaml:"bw2"`
	At            []int           `yaml:"at"` // M and N of the schedules compared
	AFABFaster    float64         `yaml:"afab_faster"`
	AFABMemory    float64         `yaml:"afab_memory"`
	AdvanceFaster float64         `yaml:"advance_faster"`
	AdvanceMemory float64         `yaml:"advance_memory"`
}

func (w avgpipeCompared) training() avgpipeTraining { return w.Training }

// ofABatch is why our speedups are not the paper's.
const ofABatch = "of a batch, here; the paper's is of training to a target"

func avgpipeFigure11(ctx context.Context, _ table.Options, t *table.Table) error {
	sum, compared, least, most := 0.0, 0, math.Inf(1), 0.0
	err := avgpipeLoads(ctx, t, "fig11", func(w avgpipeCompared, load *avgpipe.Workload, sizes []int) error {
		baselines, err := load.Baselines(ctx, w.MicroBatches)
		if err != nil {
			return err
		}
		grid, err := avgpipe.Grid(w.Training.Batch, sizes, w.Training.Pipelines)
		if err != nil {
			return err
		}
		rows, err := load.AtEqualMemory(ctx, grid, baselines)
		if err != nil {
			return err
		}
		printed := map[string]float64{"data parallelism": w.DP, "GPipe": w.GPipe, "PipeDream": w.PipeDream,
			"PipeDream-2BW": w.BW2}
		for _, r := range rows {
			what := fmt.Sprintf("%s, over %s", w.Training.Name, r.Name)
			if r.AvgPipe == nil {
				t.Word(what+", speedup", "-", "none fits "+terminal.Bytes(r.SmallestBytes),
					"the baseline holds less than AvgPipe's leanest degrees")
				continue
			}
			why := "every micro-batch is as efficient alone as with others, so that pipelines fill bubbles and nothing else"
			if r.Name == "data parallelism" {
				why = "all gradients over 1 Gbps once a batch take many seconds; the paper does not say how its own were sent"
			}
			t.Number(fmt.Sprintf("%s, speedup at %s of %s", what, r.AvgPipe.At, terminal.Bytes(r.AvgPipe.Peak())),
				printed[r.Name], r.Speedup(), "%.2fx", why)
			t.Number(what+", its utilisation", 0, 100*r.Utilisation(), "%.0f %%", "")
			if r.Name != "data parallelism" {
				sum, compared = sum+r.Speedup(), compared+1
				least, most = min(least, r.Speedup()), max(most, r.Speedup())
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if compared > 0 {
		t.Word("least to most over pipelines", "1.1x to 3.0x", fmt.Sprintf("%.2fx to %.2fx", least, most), ofABatch)
	}
	t.Number("mean speedup over pipelines", 1.7, sum/float64(max(compared, 1)), "%.2fx", ofABatch)
	return nil
}

func avgpipeFigure17(ctx context.Context, _ table.Options, t *table.Table) error {
	return avgpipeLoads(ctx, t, "fig11", func(w avgpipeCompared, load *avgpipe.Workload, _ []int) error {
		at := avgpipe.Degrees{MicroBatches: w.At[0], Pipelines: w.At[1]}
		one, advance, all, err := load.Schedules(ctx, at)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%s at %s, ", w.Training.Name, at)
		memory := func(p *avgpipe.Pipelined) float64 { return float64(p.Peak()) / float64(one.Peak()) }
		const fixed = "parameters and optimizer states are more of the memory here, and computing more of the time"
		t.Number(name+"AFAB over 1F1B, speed", w.AFABFaster, one.StepS/all.StepS, "%.2fx", fixed)
		t.Number(name+"advance over 1F1B, speed", w.AdvanceFaster, one.StepS/advance.StepS, "%.2fx", fixed)
		t.Number(name+"AFAB over 1F1B, memory", w.AFABMemory, memory(all), "%.2fx", fixed)
		t.Number(name+"advance over 1F1B, memory", w.AdvanceMemory, memory(advance), "%.2fx", fixed)
		return nil
	})
}
