// Package dapple registers the experiments of DAPPLE's tables and figures.
//
// Input: an experiment's Options. Output: its Table. Errors: the planners' errors.
package dapple

import (
	"strings"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/plan"
)

func init() {
	table.Register("dapple-fig12",
		"DAPPLE Figure 12: speedups of Table 6's plans by simulation, 2x8, and of our plans, 4x8",
		table.Uses{}, dappleFigure12)
	table.Register("dapple-table7", "DAPPLE Table 7: the most layers of BERT with recompute", table.Uses{}, dappleTable7)
}

type dappleRow struct {
	Workload   string            `yaml:"workload"`
	Batch      int               `yaml:"batch"`
	BatchUsed  int               `yaml:"batch_used"` // replaces a Batch that cannot be divided into micro-batches
	MicroBatch int               `yaml:"micro_batch"`
	Plans      map[string]string `yaml:"plans"`
	Planner    string            `yaml:"planner"`
	Cuts       []string          `yaml:"cuts"`
	Replicas   []int             `yaml:"replicas"`
	Straight   bool              `yaml:"straight"`
	Speedup    float64           `yaml:"speedup"`
	States     []int             `yaml:"states"`   // in the published profile: last state of each stage but the last
	Artifact   map[string]string `yaml:"artifact"` // settings for the published planner

	Counts string             `yaml:"counts"` // regexp for the names of the layers that are counted in splits
	Splits map[string]string  `yaml:"splits"`
	ACR    map[string]float64 `yaml:"acr"`
}

type dappleTable struct {
	Source  string            `yaml:"source"`
	Rows    []dappleRow       `yaml:"rows"`
	ConfigC map[string]string `yaml:"config_c"`
}

// colons returns a plan's configuration as DAPPLE writes it, such as "8:8", or "DP" for one stage.
func colons(pl *plan.Plan) string {
	if len(pl.Stages) == 1 {
		return "DP"
	}
	return strings.ReplaceAll(bench.Configuration(pl), "-", ":")
}

// speedup returns the time of one device that runs all micro-batches in sequence, divided by the plan's simulated
// step (DAPPLE §6.3).
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
