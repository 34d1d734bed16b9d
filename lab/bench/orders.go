package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
)

// Order is one schedule under one policy, predicted and measured.
type Order struct {
	Name      string         `json:"name"`
	Predicted plan.Predicted `json:"predicted"`  // at planning time
	ExpectedS []float64      `json:"expected_s"` // step predicted before each round
	StepS     []float64      `json:"step_s"`     // measured step, by round
	PeakBytes []int64        `json:"peak_bytes"`
	Gain      float64        `json:"gain"` // 1F1B's step divided by this order's, median over rounds
	Interval  stats.Interval `json:"interval,omitzero"`
	Expected  float64        `json:"expected_gain"` // Gain computed from the predicted steps
	MemoryOff *float64       `json:"memory_off"`    // largest relative error of a worker's predicted bytes; null: unknown
	TakenBack int            `json:"taken_back"`    // rounds in which updates were taken back

	Plan    *plan.Plan   `json:"plan,omitempty"`
	Command race.Command `json:"-"`
}

// Orders is the result of bench orders. All orders are compared with the first.
type Orders struct {
	record.Head
	Model   string   `json:"model"`
	Workers int      `json:"workers"`
	Orders  []*Order `json:"orders"`
}

// Kind returns the name of the benchmark, as in Head.Bench.
func (o *Orders) Kind() string { return "orders" }

// Recount returns an error for numbers that do not follow from the rounds, or from the workers' memory.
func (o *Orders) Recount() (wrong error) {
	if len(o.Orders) == 0 || slices.Contains(o.Orders, nil) {
		return errors.New("orders has none, or one that is null")
	}
	for _, one := range o.Orders {
		if len(one.StepS) != len(o.Orders[0].StepS) || len(one.ExpectedS) != len(one.StepS) ||
			len(one.PeakBytes) != len(one.Predicted.MemoryBytes) {
			wrong = errors.Join(wrong, fmt.Errorf("%s has %d rounds, %d predictions, and memory of %d workers; %s has %d "+
				"rounds, and %d workers are predicted", one.Name, len(one.StepS), len(one.ExpectedS), len(one.PeakBytes),
				o.Orders[0].Name, len(o.Orders[0].StepS), len(one.Predicted.MemoryBytes)))
			continue
		}
		gains, expected := one.over(o.Orders[0])
		wrong = errors.Join(wrong, o.Median(one.Name+": gain", gains, one.Gain, one.Interval),
			o.Median(one.Name+": expected_gain", expected, one.Expected, stats.Interval{}),
			o.memory(one))
	}
	return wrong
}

// memory returns an error if MemoryOff does not follow from the workers' predicted and measured memory.
func (o *Orders) memory(one *Order) error {
	if one.MemoryOff == nil {
		if o.Carried() {
			return nil
		}
		return fmt.Errorf("%s: memory_off is null; only what was carried over lacks it", one.Name)
	}
	return o.Value(one.Name+": memory_off", *one.MemoryOff, one.memoryOff())
}

// over returns, for each round, how many times as fast as `base` this order is, measured and predicted.
func (o *Order) over(base *Order) (gains, expected []float64) {
	for i, s := range o.StepS {
		gains, expected = append(gains, base.StepS[i]/s), append(expected, base.ExpectedS[i]/o.ExpectedS[i])
	}
	return gains, expected
}

// memoryOff returns the largest relative error of a worker's predicted memory.
func (o *Order) memoryOff() (off float64) {
	for k, bytes := range o.PeakBytes {
		off = max(off, race.Off(float64(o.Predicted.MemoryBytes[k]), float64(bytes)))
	}
	return off
}

// overPredicted returns the median over rounds of the measured step divided by the predicted one.
func (o *Order) overPredicted() float64 {
	var ratios []float64
	for i, s := range o.StepS {
		ratios = append(ratios, s/o.ExpectedS[i])
	}
	return stats.Median(ratios)
}

func WriteOrders(w io.Writer, orders []*Order) error {
	t := report.Table{Head: []string{"schedule", " predicted ms", " measured ms", " measured over predicted",
		" gain over 1f1b predicted", " measured", " 95 % interval", " memory off"}}
	var steps, memory []float64
	for _, o := range orders {
		off := o.memoryOff()
		ratio := o.overPredicted()
		steps, memory = append(steps, race.Off(1, ratio)), append(memory, off)
		t.Add(o.Name, fmt.Sprintf("%.1f", 1e3*stats.Median(o.ExpectedS)), fmt.Sprintf("%.1f", 1e3*stats.Median(o.StepS)),
			fmt.Sprintf("%.3f", ratio),
			fmt.Sprintf("%.3f", o.Expected), fmt.Sprintf("%.3f", o.Gain), fmt.Sprintf("%.3f to %.3f", o.Interval.Lo,
				o.Interval.Hi), fmt.Sprintf("%.1f %%", 100*off))
	}
	if err := t.Markdown(w); err != nil {
		return err
	}
	for _, o := range orders {
		if o.TakenBack > 0 {
			if _, err := fmt.Fprintf(w, "\n%s: gradients were clipped in %d of %d rounds, so that updates were taken back and "+
				"minibatches done again; a step of such a round is its time over its steps.\n", o.Name, o.TakenBack,
				len(o.StepS)); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(w, "\nWorst: step %.1f %%, memory %.1f %%; median: step %.1f %%, memory %.1f %%.\n",
		100*race.Worst(steps), 100*race.Worst(memory), 100*stats.Median(steps), 100*stats.Median(memory))
	return err
}

const BaseOrder = "1f1b"

// CompareOrders compares every order with the first, round by round.
func CompareOrders(orders []*Order) error {
	base := orders[0]
	for _, o := range orders {
		gains, expected := o.over(base)
		o.MemoryOff = new(o.memoryOff())
		o.Gain, o.Expected = stats.Median(gains), stats.Median(expected)
		var err error
		if o.Interval, err = stats.MedianInterval(gains, 0.95); err != nil {
			return err
		}
	}
	return nil
}
