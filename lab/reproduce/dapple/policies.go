package dapple

import (
	"context"
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/lab/reproduce/bench"
	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

func init() {
	table.Register("dapple-fig3", "DAPPLE Figure 3: memory of GPipe and DAPPLE over time", table.Uses{}, dappleFigure3)
	table.Register("dapple-table3",
		"DAPPLE Table 3: policy P_B over P_A on two servers of Config-A", table.Uses{}, dappleTable3)
}

// uniform simulates a family on equal stages. A forward takes 1 s, a backward takes 2 s, and a transfer takes
// `transfer` seconds.
func uniform(order string, stages, microBatches int, transfer float64) (*trace.Timeline, sim.Summary, error) {
	s := schedule.Settings{MicroBatches: microBatches}
	for w := range stages {
		s.Placement = append(s.Placement, []int{w})
	}
	p, err := family.Generate(order, s)
	if err != nil {
		return nil, sim.Summary{}, err
	}
	if p, err = lower.Lower(p, lower.Options{}); err != nil {
		return nil, sim.Summary{}, err
	}
	return sim.Run(p, sim.Uniform(stages, 1, 2, transfer), sim.Options{Record: true})
}

// byRatio returns how many times as fast P_B is as P_A, on two equal stages with a given activation communication
// ratio. A transfer takes this ratio times half the time of a forward and a backward together.
func byRatio(ratio float64, microBatches int) (float64, error) {
	var step [2]float64
	for i, policy := range []string{"1f1b", "pb"} {
		_, sum, err := uniform(policy, 2, microBatches, ratio*3/2)
		if err != nil {
			return 0, err
		}
		step[i] = sum.StepS
	}
	return step[0] / step[1], nil
}

// policyRow holds a model of Table 3. `ratio` is its activation communication ratio from section 6.4.
type policyRow struct {
	name     string
	micro    int
	replicas []int
	faster   float64
	ratio    float64
}

// over returns how many times as fast P_B is as P_A, with 32 micro-batches. The stages end at the layers in `last`.
func (w policyRow) over(b *bench.Bench, last []int) (float64, error) {
	var rates [2]float64
	for i, policy := range []string{"1f1b", "pb"} {
		pl, err := b.Stages(last, w.replicas, w.micro*w.replicas[0], 32)
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

func dappleTable3(ctx context.Context, _ table.Options, t *table.Table) error {
	t.Source = "DAPPLE (PPoPP'21), Table 3"
	t.Notes = append(t.Notes, "two stages of 8 devices as in Table 4, cut where the slowest stage is fastest; VGG-19, "+
		"for which Table 4 has data parallelism, as in Table 6, 14:2; micro-batches of Table 1 on each replica of the first "+
		"stage, 32 of them; both policies simulated", "section 6.4's ratios: 0.06, 0.03, 0.16 and 0.10; two equal stages "+
		"whose transfers have them, simulated")
	for _, w := range []policyRow{{"bert-48", 2, []int{8, 8}, 1, .06}, {"xlnet-36", 1, []int{8, 8}, 1.02, .03},
		{"vgg19", 32, []int{14, 2}, 1.1, .16}, {"gnmt-16", 64, []int{8, 8}, 1.31, .1}} {
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
		ours, err := w.over(b, s.Last)
		if err != nil {
			return err
		}
		r := t.Number(w.name+", P_B over P_A", w.faster, ours, "%.2f", "").In("Table 3")
		for _, part := range []float64{.5, .4, .32} {
			if ours, err = w.over(b.MessagesAt(part), s.Last); err != nil {
				return err
			}
			r.Ablate(fmt.Sprintf("messages at %g of the wires' rate", part), ours, "%.2f")
		}
		if ours, err = byRatio(w.ratio, 32); err != nil {
			return err
		}
		r.Ablate("the ratio is the paper's", ours, "%.2f")
	}
	return nil
}

// dappleFigure3 simulates the figure's three stages and seven micro-batches.
func dappleFigure3(_ context.Context, _ table.Options, t *table.Table) error {
	t.Source = "DAPPLE (PPoPP'21), Figure 3 and section 3.2"
	t.Notes = append(t.Notes, "three equal stages, seven micro-batches, a backward as long as two forwards; memory is of "+
		"micro-batches between their forward and their backward on the first device")
	const stages, microBatches = 3, 7
	chart := table.Chart{Title: "Memory of GPU 0", X: "time, in forwards", Y: "micro-batches held"}
	var peak, takes [2]float64
	for i, way := range []struct{ name, order string }{{"GPipe", "afab"}, {"DAPPLE", "1f1b"}} {
		timeline, sum, err := uniform(way.order, stages, microBatches, 0)
		if err != nil {
			return err
		}
		line := table.Line{Name: way.name}
		held := 0.
		for _, e := range timeline.Events { // each worker's events are in the order of their ends
			if e.Worker != 0 || e.Kind != "F" && e.Kind != "B" {
				continue
			}
			add := func(at, change float64) {
				line.X, line.Y = append(line.X, at, at), append(line.Y, held, held+change)
				held += change
			}
			if e.Kind == "F" {
				add(e.StartS, 1)
			} else {
				add(e.EndS, -1)
			}
			peak[i] = max(peak[i], held)
		}
		takes[i] = sum.StepS
		chart.Lines = append(chart.Lines, line)
	}
	t.Charts = append(t.Charts, chart)
	t.Number("GPipe, micro-batches held at the peak", microBatches, peak[0], "%.0f", "").In("peak")
	t.Number("DAPPLE, micro-batches held at the peak", stages, peak[1], "%.0f", "").In("peak")
	t.Says("both take as long", math.Abs(takes[0]/takes[1]-1) < 1e-9)
	return nil
}
