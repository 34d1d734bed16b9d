package planning

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune"
)

// print writes what was planned.
func (f *planFlags) print(c *cobra.Command, p *prepare.Prepared) error {
	if f.output != "" {
		if err := p.Plan.Write(f.output); err != nil {
			return err
		}
	}
	var why *tune.Explanation
	if p.Plan.Predicted != nil {
		var err error
		research := f.planner == "auto" && p.Job.Cluster != ""
		if why, err = tune.Explain(c.Context(), f.request(p), p.Plan, research); err != nil {
			return err
		}
	}
	var rivals []tune.Rival
	if p.Result != nil {
		rivals = p.Result.Rivals
	}
	out := c.OutOrStdout()
	if f.asJSON {
		return cli.WriteJSON(out, struct {
			Plan        *plan.Plan        `json:"plan"`
			Rivals      []tune.Rival      `json:"rivals,omitempty"`
			Explanation *tune.Explanation `json:"explanation,omitempty"`
		}{p.Plan, rivals, why})
	}
	table := len(rivals) > 1 && p.Job.Cluster != ""
	shown := *p
	if table { // the rest of the reasons is the table
		brief := *p.Plan
		brief.Why = brief.Why[:min(1, len(brief.Why))]
		shown.Plan = &brief
	}
	Explain(out, &shown)
	if table {
		printRivals(out, rivals)
	}
	if why != nil {
		explainMore(out, p, why)
		if over := overLimit(why.Memory); over != nil {
			f.doesNotFit(c, p, over)
		}
	}
	return nil
}

// Explain prints a plan for people.
func Explain(w io.Writer, p *prepare.Prepared) {
	pl := p.Plan
	fmt.Fprintf(w, "%s: %d samples a step as %s of %d, schedule %s\n", pl.Model, pl.Batch(), countMicros(pl.MicroBatches),
		pl.MicroBatch, pl.Schedule)
	if e := pl.Elastic; e != nil {
		fmt.Fprintf(w, "%d pipelines side by side, a batch of each a step, alpha %.3g, %s\n", e.Pipelines, e.Alpha, e.Order)
	}
	for i, s := range pl.Stages {
		again := ""
		if s.Recompute.Again() {
			again = ", recomputed: " + s.Recompute.String()
		}
		name := func(layer int) string {
			if pl.Order != nil {
				layer = pl.Order[layer]
			}
			return p.Profile.Layers[layer].Name
		}
		fmt.Fprintf(w, "  stage %d  layers %s  %s .. %s  on worker %s%s\n", i, s.Layers(),
			name(s.FirstLayer), name(s.LastLayer), numbers(s.Devices), again)
	}
	if pl.Objective.Name != "" && pl.Planner != "auto" && pl.Objective.Value > 0 {
		fmt.Fprintf(w, "planner %s: %s %.6g %s\n", pl.Planner, pl.Objective.Name, pl.Objective.Value, pl.Objective.Unit)
	}
	if q := pl.Predicted; q != nil {
		fmt.Fprintf(w, "predicted: %.4g ms a step, %.4g samples/s, bubble %.1f %%\n", 1e3*q.StepS,
			q.SamplesPerSecond, 100*q.Bubble)
		rows := alike{}
		for i, d := range pl.Devices() {
			peak := cluster.FormatBytes(q.MemoryBytes[i])
			if most := q.Needs()[i]; most > q.MemoryBytes[i] {
				peak += fmt.Sprintf(" (at most %s, if it falls behind or evaluates)", cluster.FormatBytes(most))
			}
			rows.add(d, fmt.Sprintf("busy %.4g ms  peak %s  at most %s at once", 1e3*q.BusyS[i], peak,
				countMicros(q.PeakActivations[i])))
		}
		rows.each(func(workers, text string) { fmt.Fprintf(w, "  worker %s  %s\n", workers, text) })
	}
	if b := pl.LowerBound; b != nil {
		fmt.Fprintf(w, "no plan on %d workers can take less than %.4g ms; this is %s\n", len(p.Cluster.Devices),
			1e3*b.StepS, b.Above())
	}
	if len(pl.Why) > 0 {
		fmt.Fprintln(w, "why:")
		for _, line := range pl.Why {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
}

// explainMore prints where memory and time go, and what would help.
func explainMore(w io.Writer, p *prepare.Prepared, why *tune.Explanation) {
	fmt.Fprintln(w, "memory at its fullest:")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	freezes := slices.ContainsFunc(why.Memory, func(m tune.MemorySplit) bool { return m.FrozenBytes > 0 })
	frozen := ""
	if freezes {
		frozen = "frozen\t"
	}
	fmt.Fprintf(t, "  worker\tweights\t%sversions\tgradients\toptimizer\tactivations\tbuffers\tpeak\tlimit\t\n", frozen)
	rows := alike{}
	for _, m := range why.Memory {
		limit := "none"
		if m.LimitBytes > 0 {
			limit = cluster.FormatBytes(m.LimitBytes)
			if m.NeedsBytes > m.LimitBytes {
				limit += fmt.Sprintf(" (%s over)", cluster.FormatBytes(m.NeedsBytes-m.LimitBytes))
			}
		}
		cells := cluster.FormatBytes(m.WeightBytes) + "\t"
		if freezes {
			cells += cluster.FormatBytes(m.FrozenBytes) + "\t"
		}
		for _, n := range []int64{m.VersionBytes, m.GradientBytes, m.OptimizerBytes, m.ActivationBytes,
			m.BufferBytes, m.PeakBytes} {
			cells += cluster.FormatBytes(n) + "\t"
		}
		rows.add(m.Device, cells+limit)
	}
	rows.each(func(workers, text string) { fmt.Fprintf(t, "  %s\t%s\t\n", workers, text) })
	t.Flush()
	fmt.Fprintf(w, "bottleneck: %s\n", why.Bottleneck)
	if len(why.Levers) > 0 {
		fmt.Fprintln(w, "what would help:")
	}
	for _, l := range why.Levers {
		fmt.Fprintf(w, "  %s: %.4g ms a step, %s\n", l.Change, 1e3*l.StepS, faster(l.Gain))
	}
	if why.Drawing != "" {
		fmt.Fprint(w, why.Drawing)
	}
}

func faster(gain float64) string {
	if gain < 0.0005 {
		return "no faster"
	}
	return fmt.Sprintf("%.1f %% more samples a second", 100*gain)
}

// printRivals is the ranked table.
func printRivals(w io.Writer, rivals []tune.Rival) {
	fmt.Fprintln(w, "ranked, the best of each kind:")
	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	for i, r := range rivals {
		rank := fmt.Sprint(i + 1)
		if r.Note != "" {
			rank = "-"
		}
		shape := r.Note
		if r.Plan != nil {
			shape = strings.TrimSpace(r.Note + " " + shapeOf(r.Plan))
		}
		if !r.Fits {
			shape += ", does not fit"
		}
		fmt.Fprintf(t, "  %s\t%s\t%.4g ms\t%.4g samples/s\t%s\n", rank, r.Kind, 1e3*r.Predicted.StepS,
			r.Predicted.SamplesPerSecond, shape)
	}
	t.Flush()
}

// shapeOf is the devices of each stage and the micro-batches, like 8:8 64x2.
func shapeOf(pl *plan.Plan) string {
	var counts []string
	for _, s := range pl.Stages {
		counts = append(counts, fmt.Sprint(len(s.Devices)))
	}
	text := strings.Join(counts, ":")
	if n := len(counts); n > 8 && strings.Count(text, "1:") == n-1 {
		text = fmt.Sprintf("straight %d", n)
	}
	text = fmt.Sprintf("devices %s, micro-batches %dx%d", text, pl.MicroBatches, pl.MicroBatch)
	if pl.Divided() {
		text += ", stages end behind"
		for i, done := 0, 0.0; i < len(pl.Stages)-1; i++ {
			st := &pl.Stages[i]
			for l := st.FirstLayer; l <= st.LastLayer; l++ {
				done += st.Fraction(l)
			}
			text += fmt.Sprintf(" %.4g", done)
		}
		text += " layers"
	}
	return text
}

func layersOf(p *profile.Profile) []string {
	var names []string
	for _, l := range p.Layers {
		names = append(names, l.Name)
	}
	return names
}
