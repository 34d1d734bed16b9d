package slow

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/race"
)

// The rivals of a cell, by their names in files and tables.
const (
	Chosen      = "millrace"             // with the plan that millrace chooses
	Plain       = "millrace dp-overlap"  // data parallelism with overlap
	DDP         = "PyTorch DDP"          // over Gloo
	Accumulated = "PyTorch DDP, no_sync" // DDP that adds up the gradients of micro-batches before the all-reduce
)

// leastOfDDP and leastWhereSlow are the promised speeds relative to DDP. A cell breaks the promise if its interval is
// wholly below leastOfDDP. It also breaks the promise if its model is slowModel, its links have at most slowBits per
// second, and its median ratio is below leastWhereSlow.
const (
	leastOfDDP     = 0.97
	leastWhereSlow = 5
	slowModel      = "vgg16-quarter"
	slowBits       = 100e6
)

// Cell has the measurements of one model on a number of hosts with links of one rate.
type Cell struct {
	Model          string  `json:"model"`
	Hosts          int     `json:"hosts"`
	Rate           string  `json:"rate"`
	BitsPerSecond  float64 `json:"bits_per_second"`
	Batch          int     `json:"batch"` // rows in a step, over all hosts
	ParameterBytes int64   `json:"parameter_bytes"`
	Plan           string  `json:"plan"`
	Date           string  `json:"date"`
	Load           string  `json:"load"` // load of the machine before the measurement
	TookS          float64 `json:"took_s"`

	// ComputeS is the duration of a step of DDP without an all-reduce, and ReduceS is the duration of an all-reduce
	// alone, in seconds.
	ComputeS float64 `json:"compute_s"`
	ReduceS  float64 `json:"reduce_s"`

	Runs []Run `json:"runs"` // Chosen comes first
}

// Run is the measurement of a rival in a cell.
type Run struct {
	Name       string         `json:"name"`
	StepS      float64        `json:"step_s"` // median over the rounds
	PredictedS float64        `json:"predicted_s,omitempty"`
	Rates      []float64      `json:"rates"`            // samples per second, by round
	Ratio      float64        `json:"ratio,omitempty"`  // Chosen's rate divided by this rival's, median over the rounds
	Ratios     []float64      `json:"ratios,omitempty"` // by round
	Interval   stats.Interval `json:"interval,omitzero"`
}

// Compare computes steps, ratios and intervals from the rates. All runs must have the same number of rates.
func (c *Cell) Compare() error {
	for i := range c.Runs {
		r := &c.Runs[i]
		r.StepS = float64(c.Batch) / stats.Median(r.Rates)
		if i == 0 {
			continue
		}
		r.Ratios = nil
		for k, rate := range r.Rates {
			r.Ratios = append(r.Ratios, c.Runs[0].Rates[k]/rate)
		}
		var err error
		if r.Interval, err = stats.MedianInterval(r.Ratios, 0.95); err != nil {
			return fmt.Errorf("slow: %s: %w", c.Name(), err)
		}
		r.Ratio = stats.Median(r.Ratios)
	}
	return nil
}

// Name describes the cell in a few words.
func (c *Cell) Name() string { return fmt.Sprintf("%s on %d hosts at %s", c.Model, c.Hosts, c.Rate) }

// Run returns a rival's run. A measured cell has a run of every rival.
func (c *Cell) Run(name string) *Run {
	return &c.Runs[slices.IndexFunc(c.Runs, func(r Run) bool { return r.Name == name })]
}

// lacks says what a cell lacks to be shown; "" if it is complete.
func (c *Cell) lacks() string {
	all := []string{Chosen, Plain, DDP, Accumulated}
	switch {
	case !slices.EqualFunc(c.Runs, all, func(r Run, name string) bool { return r.Name == name }):
		return fmt.Sprintf("runs of %q, in this order", all)
	case slices.ContainsFunc(c.Runs, func(r Run) bool { return len(r.Rates) == 0 || !(r.StepS > 0) }):
		return "rates and step_s above 0 of each run"
	case slices.ContainsFunc(c.Runs[1:], func(r Run) bool { return !(r.Ratio > 0 && r.Interval.Lo > 0) }):
		return "ratio and interval above 0 of each run but the first"
	case !(c.ComputeS > 0 && c.ReduceS > 0 && c.BitsPerSecond > 0 && c.Runs[0].PredictedS > 0):
		return "compute_s, reduce_s, bits_per_second and predicted_s above 0"
	}
	return ""
}

// Share returns DDP's all-reduce time divided by its compute time.
func (c *Cell) Share() float64 { return c.ReduceS / c.ComputeS }

// Fastest returns the faster of PyTorch's two runs.
func (c *Cell) Fastest() *Run {
	a, b := c.Run(DDP), c.Run(Accumulated)
	if b.StepS < a.StepS {
		return b
	}
	return a
}

// Broken says how the cell breaks the promise (leastOfDDP, leastWhereSlow), compared with the faster of PyTorch's two
// runs; "" if it does not.
func (c *Cell) Broken() string {
	switch d := c.Fastest(); {
	case d.Interval.Hi < leastOfDDP:
		return fmt.Sprintf("%s: wholly below %v of %s: %.2f (%.2f to %.2f)", c.Name(), leastOfDDP, d.Name, d.Ratio,
			d.Interval.Lo, d.Interval.Hi)
	case c.Model == slowModel && c.BitsPerSecond <= slowBits && d.Ratio < leastWhereSlow:
		return fmt.Sprintf("%s: less than %v times %s: %.2f", c.Name(), leastWhereSlow, d.Name, d.Ratio)
	}
	return ""
}

// Off returns the relative error of the chosen plan's prediction. No promise depends on it, because the hosts share
// processors, which changes the time of a step.
func (c *Cell) Off() float64 { return race.Off(c.Runs[0].PredictedS, c.Runs[0].StepS) }
