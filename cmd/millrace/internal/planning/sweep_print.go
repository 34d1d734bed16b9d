package planning

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile/kernels"
	"github.com/millrace-ml/millrace/report/scatter"
	"github.com/millrace-ml/millrace/tune/shape"
)

// shown is the number of shapes in a table without --explain.
const shown = 12

// drawn prints the ranking. For the best shape it adds the parts of its step, what the step depends on, and what it
// costs.
func drawn(out io.Writer, m *model.Model, c *cluster.Cluster, found []*shape.Prediction, others int,
	sensitive []shape.Sensitivity, all bool) error {
	screen := terminal.Of(out)
	if err := ranking(out, screen, found, all); err != nil {
		return err
	}
	best := found[0]
	s := best.Shape
	rest := ""
	switch left := len(found) - shown; {
	case left > 0 && !all && others > 0:
		rest = fmt.Sprintf(" (of %d shapes; --explain shows %d)", len(found)+others, len(found))
	case left > 0 && !all:
		rest = fmt.Sprintf(" (of %d shapes; --explain shows the rest)", len(found))
	case others > 0:
		rest = fmt.Sprintf(" (of %d shapes; none of the others that fit is faster)", len(found)+others)
	}
	fmt.Fprint(out, screen.Wrap("best        ", "            ", s.String()+rest))
	if idle := len(c.Devices) - s.Devices(); idle > 0 {
		fmt.Fprintf(out, "idle        %s of %d\n", terminal.Count(idle, "device"), len(c.Devices))
	}
	d := c.DeviceTypes[c.Devices[0]]
	if !all {
		var named []string
		for _, p := range parts(best) {
			if p.s > 0.0005*best.StepS {
				named = append(named, fmt.Sprintf("%s %.1f %%", p.short, 100*p.s/best.StepS))
			}
		}
		fmt.Fprint(out, screen.Wrap("step        ", "            ", terminal.Duration(best.StepS)+": "+
			strings.Join(named, ", ")))
	}
	if peak := d.Peak(s.Precision) * float64(s.Devices()); peak > 0 {
		fmt.Fprintf(out, "utilisation %.1f %% of the peak, without what is computed again\n",
			100*best.FLOPs/best.StepS/peak)
	}
	if text := costs(d.PricePerHour*float64(len(c.Devices)), best.StepS, s.Batch, m); text != "" {
		fmt.Fprint(out, screen.Wrap("cost        ", "            ", text))
	}
	if all {
		return explained(out, screen, best, sensitive, "best then", "the same", "none fits")
	}
	most := slices.MaxFunc(sensitive, func(a, b shape.Sensitivity) int {
		if a.StepS < b.StepS {
			return -1
		}
		return 1
	})
	text := fmt.Sprintf("if %s: %s a step, %s", most.Assumption, terminal.Duration(most.StepS),
		change(most.StepS, best.StepS))
	changes := 0
	for _, a := range sensitive {
		if a.Best != nil {
			changes++
		}
	}
	switch {
	case changes > 0:
		text += fmt.Sprintf("; another shape is best under %d of %s, which --explain lists", changes,
			terminal.Count(len(sensitive), "such assumption"))
	default:
		text += fmt.Sprintf("; it stays the best one under each of %s, which --explain lists",
			terminal.Count(len(sensitive), "such assumption"))
	}
	fmt.Fprint(out, screen.Wrap("depends     ", "            ", text))
	return nil
}

// ranking prints one row for each shape.
func ranking(out io.Writer, screen terminal.Screen, found []*shape.Prediction, all bool) error {
	t := terminal.Table{Columns: []terminal.Column{{Heading: "dp", Number: true}, {Heading: "pp", Number: true},
		{Heading: "tp", Number: true}, {Heading: "micro-batches", Number: true}, {Heading: "chunks", Number: true, Spare: 2},
		{Heading: "recompute"}, {Heading: "divide", Spare: 1}, {Heading: "step", Number: true},
		{Heading: "samples/s", Number: true}, {Heading: "holds", Number: true}, {Heading: "fits"},
		{Heading: "speed", Spare: 3}}}
	rows := found
	if !all {
		rows = found[:min(shown, len(found))]
	}
	fit := !slices.ContainsFunc(rows, func(p *shape.Prediction) bool { return !p.Fits })
	for _, p := range rows {
		s := p.Shape
		fits, bar := "yes", strings.Repeat("■", max(1, int(10*found[0].StepS/p.StepS+0.5)))
		switch {
		case fit: // every shape fits; a column that has only empty cells is not shown
			fits = ""
		case !p.Fits:
			fits, bar = "no", ""
		}
		t.Add(fmt.Sprint(s.Replicas), fmt.Sprint(s.Stages), fmt.Sprint(s.Tensor),
			fmt.Sprintf("%d of %d", s.MicroBatches(), s.MicroBatch), fmt.Sprint(s.Chunks), s.Recompute, s.Shard,
			terminal.Duration(p.StepS), terminal.Number(float64(s.Batch)/p.StepS, 4),
			terminal.Bytes(slices.Max(p.MemoryBytes)), fits, bar)
	}
	if err := t.Write(out, screen); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	return nil
}

// part is a part of a step, with a short and a full name.
type part struct {
	short, full string
	s           float64
}

// parts returns the parts of a step, which add up to its time.
func parts(of *shape.Prediction) []part {
	p := of.Parts
	computes := p.KernelsS
	if p.Spent != (kernels.Spent{}) {
		computes = 0 // the kernels' time is listed by what bounds it instead
	}
	return []part{
		{"computing", "forwards and backwards", computes},
		{"products", "products of matrices", p.ProductsS},
		{"attention", "scores of attention", p.AttentionS},
		{"memory-bound", "bound by memory: norms, activations, losses, small products", p.MemoryS},
		{"launches", "launches of kernels, and layers beside them", p.LaunchesS},
		{"sums of groups", "all-reduces of tensor-parallel groups", p.SumsS},
		{"computed again", "computed again: recompute", p.AgainS},
		{"gathers", "gathers of weights and scatters of gradients beside computations", p.GatherS},
		{"transfers", "messages between stages that nothing hides", p.TransfersS},
		{"contention", "contention of messages and sums of gradients at the ports that they share", p.ContentionS},
		{"waiting", "waiting: the busiest stage waits for the others", p.BubbleS},
		{"gradients", "all-reduce over replicas: not hidden, or taken from computations", p.GradientsS},
		{"update", "update by the optimizer", p.UpdateS},
		{"fixed", "fixed, of each step", p.FixedS},
	}
}

// explained prints two tables: the parts of a step, and what the step's time depends on. `then` is the heading of the
// second table's last column. That column names the plan that is best after a change. It shows the text `same` if the
// best plan stays the same, and the text `none` if nothing fits.
func explained(out io.Writer, screen terminal.Screen, best *shape.Prediction, sensitive []shape.Sensitivity, then, same,
	none string) error {
	t := terminal.Table{Columns: []terminal.Column{{Heading: "where a step by itself goes", Wraps: true},
		{Heading: "time", Number: true}, {Heading: "part", Number: true}}}
	for _, p := range parts(best) {
		if p.s > 1e-6*best.StepS {
			t.Add(p.full, terminal.Duration(p.s), fmt.Sprintf("%.1f %%", 100*p.s/best.StepS))
		}
	}
	t.AddFaint("all", terminal.Duration(best.StepS), "")
	fmt.Fprintln(out)
	if err := t.Write(out, screen); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	t = terminal.Table{Columns: []terminal.Column{{Heading: "if an assumption is worse"}, {Heading: "step", Number: true},
		{Heading: "", Number: true}, {Heading: then, Wraps: true}}}
	for _, a := range sensitive {
		text := same
		if !a.Fits {
			text = none
		}
		if a.Best != nil {
			text = fmt.Sprintf("%v: %s", a.Best, terminal.Duration(a.BestS))
		}
		t.Add(a.Assumption, terminal.Duration(a.StepS), change(a.StepS, best.StepS), text)
	}
	fmt.Fprintln(out)
	if err := t.Write(out, screen); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	return nil
}

// change returns by how many percent `stepS` is longer than `than`, with a sign and one decimal. If the number rounds
// to zero, the text is "+0.0 %", never "-0.0 %".
func change(stepS, than float64) string {
	text := fmt.Sprintf("%+.1f %%", 100*(stepS/than-1))
	return strings.Replace(text, "-0.0 %", "+0.0 %", 1)
}

// costs returns the price of a step and of a million samples. For a model of texts it adds the price of a million
// tokens. It needs the hourly price of all devices, else it returns "".
func costs(pricePerHour, stepS float64, batch int, m *model.Model) string {
	if pricePerHour <= 0 {
		return ""
	}
	step := pricePerHour * stepS / 3600
	each := step / float64(batch)
	text := fmt.Sprintf("%.4g a step, %.4g for a million samples", step, 1e6*each)
	if m != nil {
		if in := m.Inputs[0]; in.DType == model.Int && len(in.Shape) == 1 && in.Shape[0] > 1 {
			text += fmt.Sprintf(", %.4g for a million tokens", 1e6*each/float64(in.Shape[0]))
		}
	}
	return text + ", with all devices paid for"
}

// plotted draws step time over memory, with one series for each size of tensor-parallel groups.
func plotted(m *model.Model, c *cluster.Cluster, found []*shape.Prediction) *scatter.Drawing {
	const gib = 1 << 30
	d := &scatter.Drawing{Title: fmt.Sprintf("%s on %s: %d shapes", m.Name, c.Name, len(found)),
		X: "memory of the fullest device, GiB", Y: "step, s", BestName: "fastest that fits"}
	for _, p := range found {
		name := fmt.Sprintf("tp %d", p.Shape.Tensor)
		i := slices.IndexFunc(d.Series, func(s scatter.Series) bool { return s.Name == name })
		if i < 0 {
			i, d.Series = len(d.Series), append(d.Series, scatter.Series{Name: name})
		}
		at := scatter.Point{X: float64(slices.Max(p.MemoryBytes)) / gib, Y: p.StepS, Out: !p.Fits}
		d.Series[i].Points = append(d.Series[i].Points, at)
		if d.Best == nil && p.Fits {
			d.Best = &at
		}
	}
	slices.SortStableFunc(d.Series, func(a, b scatter.Series) int { // shorter names first, so tp 2 comes before tp 16
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), strings.Compare(a.Name, b.Name))
	})
	if limit := c.MemoryBytes(0); limit > 0 {
		d.Bound, d.BoundName = float64(limit)/gib, "memory of a device"
	}
	return d
}

// money returns the price of a plan's steps, if all devices of the cluster have a price.
func (v *view) money() string {
	pricePerHour := 0.0
	for _, device := range v.Cluster.Devices {
		of := v.Cluster.DeviceTypes[device].PricePerHour
		if of <= 0 {
			return ""
		}
		pricePerHour += of
	}
	if v.Plan.Predicted == nil {
		return ""
	}
	return costs(pricePerHour, v.Plan.Predicted.StepS, v.Plan.StepSamples(), v.Model)
}
