package bench

import (
	"fmt"
	"io"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
)

// Order is one schedule under one policy, predicted and measured.
type Order struct {
	Name      string         `json:"name"`
	Predicted plan.Predicted `json:"predicted"`  // when it was planned
	ExpectedS []float64      `json:"expected_s"` // its step as predicted before each round
	StepS     []float64      `json:"step_s"`     // measured, by round
	PeakBytes []int64        `json:"peak_bytes"`
	Gain      float64        `json:"gain"` // 1F1B's step over this one's, median over rounds
	Interval  stats.Interval `json:"interval"`
	Expected  float64        `json:"expected_gain"` // by the predictions, likewise
	TakenBack int            `json:"taken_back"`    // rounds in which updates were

	Plan    *plan.Plan
	Command race.Command
}

// overPredicted is what was measured over what was predicted, the median over rounds.
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
		off := 0.0
		for k, bytes := range o.PeakBytes {
			off = max(off, race.Off(float64(o.Predicted.MemoryBytes[k]), float64(bytes)))
		}
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

// CompareOrders holds every order against the first, round by round.
func CompareOrders(orders []*Order) error {
	base := orders[0]
	for _, o := range orders {
		var gains, expected []float64
		for i, s := range o.StepS {
			gains, expected = append(gains, base.StepS[i]/s), append(expected, base.ExpectedS[i]/o.ExpectedS[i])
		}
		o.Gain, o.Expected = stats.Median(gains), stats.Median(expected)
		var err error
		if o.Interval, err = stats.MedianInterval(gains, 0.95); err != nil {
			return err
		}
	}
	return nil
}
