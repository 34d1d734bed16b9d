package planning

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/shape"
)

// print prints the plan, and writes it to a file if one is given.
func (f *planFlags) print(c *cobra.Command, p *prepare.Prepared) error {
	if f.output != "" {
		if err := p.Plan.Write(f.output); err != nil {
			return err
		}
	}
	why := f.why
	if p.Result != nil && p.Plan != p.Result.Best { // the job's advance was added to the plan after `why` was written
		why = nil
	}
	if p.Plan.Predicted != nil && why == nil && f.stopped == nil { // a stopped verb has no time for an explanation
		var err error
		if why, err = tune.Explain(c.Context(), f.request(p), p.Plan); err != nil {
			return err
		}
	}
	var best *shape.Prediction
	var sensitive []shape.Sensitivity
	if f.explain && why != nil {
		var err error
		if best, sensitive, err = apart(p); err != nil {
			return err
		}
	}
	out := c.OutOrStdout()
	if f.asJSON {
		var rivals []tune.Rival
		if p.Result != nil {
			rivals = p.Result.Rivals
		}
		return cli.WriteJSON(out, struct {
			Plan        *plan.Plan        `json:"plan"`
			Rivals      []tune.Rival      `json:"rivals,omitempty"`
			Explanation *tune.Explanation `json:"explanation,omitempty"`
			// Step and Sensitivities are only given with --explain. They describe a single step.
			Step          *shape.Prediction   `json:"step,omitempty"`
			Sensitivities []shape.Sensitivity `json:"sensitivities,omitempty"`
		}{p.Plan, rivals, why, best, sensitive})
	}
	v := &view{Prepared: p, to: out, Screen: terminal.Of(out), all: f.explain,
		rest: "--explain has all"}
	v.plan(why)
	if why == nil {
		return nil
	}
	if f.explain {
		v.memory(why.Memory)
		if why.Step != nil {
			v.drawing(why.Step)
		}
		if best != nil {
			if err := explained(out, v.Screen, best, sensitive, "memory then", "fits", "does not fit"); err != nil {
				return err
			}
		}
	}
	if over := overLimit(why.Memory); over != nil {
		f.doesNotFit(c, p, over)
	}
	return nil
}

// Explain prints a plan for people. `rest` says where the reader finds the rows that it leaves out.
func Explain(w io.Writer, p *prepare.Prepared, rest string) {
	(&view{Prepared: p, to: w, Screen: terminal.Of(w), rest: rest}).plan(nil)
}

// view prints a plan on a screen.
type view struct {
	*prepare.Prepared
	terminal.Screen
	to   io.Writer
	all  bool   // also prints the rows that a screen has no room for
	rest string // says where to find the rows that a screen has no room for
}

// plan prints the choice, its prediction, the bound, and rivals. With an explanation it also prints what would make
// the step shorter.
func (v *view) plan(why *tune.Explanation) {
	pl := v.Plan
	fmt.Fprint(v.to, v.Wrap("", "  ", v.Paint(terminal.Bold, pl.Model)+": "+v.choice()))
	if have, own := tune.Warmups(pl); have != nil {
		fmt.Fprint(v.to, v.Wrap("  ", "  ", fmt.Sprintf("warm-up %s; the schedule's own is %s", list(have), list(own))))
	}
	if e := pl.Elastic; e != nil {
		fmt.Fprint(v.to, v.Wrap("  ", "  ", fmt.Sprintf("%s side by side, a batch of each a step, alpha %.3g, %s%s",
			terminal.Count(e.Pipelines, "pipeline"), e.Alpha, e.Order, where(e))))
	}
	if schedule.Policy(pl.Weights).Served() {
		bound := "however far the others are"
		if s := pl.Staleness; s != nil {
			bound = fmt.Sprintf("%s ahead of the slowest at most", terminal.Count(*s, "minibatch"))
		}
		v.line("weights", "on the last worker; each other one takes the newest for its next minibatch, "+bound)
	}
	v.line("replicas", replicas(pl))
	v.workers()
	if pl.Objective.Name != "" && pl.Planner != "auto" && pl.Objective.Value > 0 {
		v.line("planner", objective(pl))
	}
	if q := pl.Predicted; q != nil {
		v.line("predicted", fmt.Sprintf("%s a step, %s samples/s, bubble %.1f %%", terminal.Duration(q.StepS),
			terminal.Number(q.SamplesPerSecond, 4), 100*q.Bubble))
	}
	if b := pl.LowerBound; b != nil {
		v.line("bound", fmt.Sprintf("no such plan on %s can take less than %s; this is %s",
			terminal.Count(len(v.Cluster.Devices), "worker"), terminal.Duration(b.StepS), b.Above()))
	}
	if pl.Predicted != nil {
		v.line("memory", v.fullest())
	}
	v.line("costs", v.costs())
	v.line("money", v.money())
	if why != nil {
		v.line("bottleneck", why.Bottleneck)
		var levers []string
		for _, l := range why.Levers {
			levers = append(levers, fmt.Sprintf("%s: %s a step, %.1f %% more samples/s", l.Change,
				terminal.Duration(l.StepS), 100*l.Gain))
		}
		if why.LeversCut {
			levers = append(levers, "(searches for better hardware were ended before they were done: a longer --time looks "+
				"further)")
		}
		if left := why.LeversLeft; len(left) > 0 {
			levers = append(levers, fmt.Sprintf("(not tried, because %s: %s)", why.LeversLeftWhy, strings.Join(left, "; ")))
		}
		v.line("would help", strings.Join(levers, "\n"))
	}
	v.line("why", strings.Join(pl.Why, "\n"))
	v.rivals()
}

// objective returns what the plan's planner minimised, and the value that it reached.
func objective(pl *plan.Plan) string {
	value := fmt.Sprintf("%.6g %s", pl.Objective.Value, pl.Objective.Unit)
	if pl.Objective.Unit == "s" {
		value = terminal.Duration(pl.Objective.Value)
	}
	return fmt.Sprintf("%s: %s: %s", pl.Planner, pl.Objective.Name, value)
}

// line prints a text under a label, unless the text is empty.
func (v *view) line(label, text string) {
	if text != "" {
		const room = 12
		fmt.Fprint(v.to, v.Wrap(v.Paint(terminal.Faint, fmt.Sprintf("%-*s", room, label)), strings.Repeat(" ", room), text))
	}
}

// choice returns what was chosen, in one line.
func (v *view) choice() string {
	pl := v.Plan
	workers := terminal.Count(len(pl.Devices()), "worker")
	if n := len(v.Cluster.Devices); n > len(pl.Devices()) {
		workers = fmt.Sprintf("%d of %s", len(pl.Devices()), terminal.Count(n, "worker"))
	}
	if v.Cluster.SharesCores() && v.Cluster.AllCores() < len(pl.Devices()) {
		workers += " that share " + terminal.Count(v.Cluster.AllCores(), "core")
	}
	micros := pl.Micros()
	if n := pl.Together(); n > 1 {
		micros += fmt.Sprintf(" for each of %d pipelines", n)
	}
	return fmt.Sprintf("schedule %s on %s, %s a step as %s", pl.Schedule, workers,
		terminal.Count(pl.StepSamples(), "sample"), micros)
}

// fullest says how much memory the fullest worker needs.
func (v *view) fullest() string {
	q := v.Plan.Predicted
	peak, needs := slices.Max(q.MemoryBytes), slices.Max(q.Needs())
	text := fmt.Sprintf("%s on the fullest worker", terminal.Bytes(peak))
	if evaluated := slices.Max(q.Evaluated()); evaluated > peak {
		text += fmt.Sprintf(" in training, %s with evaluations", terminal.Bytes(evaluated))
		peak = evaluated
	}
	if needs > peak {
		text += fmt.Sprintf(" (at most %s, if it falls behind)", terminal.Bytes(needs))
	}
	least := int64(0)
	for _, d := range v.Plan.Devices() {
		if limit := v.Cluster.MemoryBytes(d); limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	if least > 0 {
		text += ", of " + terminal.Bytes(least)
	}
	if t := v.Plan.Tensor; t != nil {
		text += fmt.Sprintf("; a worker is a group of %s: %s on each", terminal.Count(t.Devices, "device"),
			terminal.Bytes(peak/int64(t.Devices)))
	}
	return text
}

// short is the duration of a layer, in seconds, below which launching kernels matters. Ten launches of 5 to 10 us take
// a quarter to half of it.
const short = 200e-6

// costs says where the costs behind the predictions come from.
func (v *view) costs() string {
	var sources []string
	shortest := 0.0 // shortest mean time of a layer on a device with computed costs
	for _, device := range slices.Compact(slices.Sorted(slices.Values(v.Cluster.Devices))) {
		source, computed := v.source(device)
		if sources = append(sources, source); !computed {
			continue
		}
		if mean := v.layerS(device); mean > 0 && (shortest == 0 || mean < shortest) {
			shortest = mean
		}
	}
	slices.Sort(sources)
	text := strings.Join(slices.Compact(sources), "; ")
	if shortest > 0 && shortest < short {
		text += fmt.Sprintf("; launches of kernels are left out, and would count: a layer's forward takes %s",
			terminal.Duration(shortest))
	}
	return text
}

// source says where a device type's costs come from, and whether a roofline computed them.
func (v *view) source(device string) (text string, computed bool) {
	m := v.Profile.On(device)
	switch {
	case m.Source == profile.SourceImported:
		return "imported: " + v.Profile.Model, false
	case m.Engine == "" && v.Cluster.DeviceTypes[device].Kernels != nil:
		return fmt.Sprintf("computed in %s from kernels: FLOPs, bytes and launches, at efficiencies by kind and size",
			cmp.Or(v.Profile.Precision, "f32")), false
	case m.Engine == "" && v.onBoard(device):
		return "computed from a board's slices, clock and memories, with FP and both halves of BP in engines of their own",
			false
	case m.Engine == "":
		return cmp.Or(m.Source, "computed") + ": computed from FLOPs, bytes, peak and bandwidth", true
	}
	at := terminal.Count(m.Concurrency, "worker")
	return fmt.Sprintf("measured on %s by %s, %s at once", device, m.Engine, at), false
}

// onBoard reports whether a device type's costs are those of a board.
func (v *view) onBoard(device string) bool {
	costs, _, err := v.Profile.At(device, v.Plan.Sizes()[0])
	return err == nil && profile.OfBoards(costs)
}

// layerS returns the mean forward time of a layer for a micro-batch on a device, in seconds.
func (v *view) layerS(device string) float64 {
	costs, _, err := v.Profile.At(device, v.Plan.Sizes()[0])
	if err != nil {
		return 0
	}
	sum := 0.0
	for _, c := range costs {
		sum += c.ForwardS
	}
	return sum / float64(len(costs))
}

// memory prints how the memory of each worker is used at its peak.
func (v *view) memory(all []tune.MemorySplit) {
	fmt.Fprintf(v.to, "\n%s\n", v.Paint(terminal.Bold, "memory at its fullest"))
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "worker"}}}
	for _, name := range []string{"weights", "frozen", "versions", "gradients", "optimizer", "activations", "buffers",
		"peak", "at most", "limit"} {
		t.Columns = append(t.Columns, terminal.Column{Heading: name, Number: true})
	}
	rows := alike{}
	for _, m := range all {
		cells := []int64{m.WeightBytes, m.FrozenBytes, m.VersionBytes, m.GradientBytes, m.OptimizerBytes, m.ActivationBytes,
			m.BufferBytes, m.PeakBytes, m.NeedsBytes, m.LimitBytes}
		var text []string
		for i, n := range cells {
			if n == 0 && (i == 1 || i == 2 || i == len(cells)-1) {
				text = append(text, "")
			} else {
				text = append(text, terminal.Bytes(n))
			}
		}
		rows.add(m.Device, strings.Join(text, "\t"))
	}
	rows.each(func(workers []int, text string) {
		t.Add(append([]string{list(workers)}, strings.Split(text, "\t")...)...)
	})
	_ = t.Write(v.to, v.Screen)
	if slices.ContainsFunc(all, func(m tune.MemorySplit) bool { return m.GradientBytes == 0 && m.WeightBytes > 0 }) {
		fmt.Fprintln(v.to, "no gradients: at its fullest, no backward has ended that makes them")
	}
}

func layersOf(p *profile.Profile) []string {
	var names []string
	for _, l := range p.Layers {
		names = append(names, l.Name)
	}
	return names
}

// leastIdle is the bubble above which a drawing must show idle time.
const leastIdle = 0.02
