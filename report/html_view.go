package report

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/trace"
)

// pageView is the data of the page's template. The template uses its fields by name.
type pageView struct {
	Title, Subtitle string
	Style           template.CSS
	Script, Data    template.JS

	Cards   []Card
	Means   []Meaning // meanings of the colours of differences, if there are any
	Facts   []Fact
	Stages  []stageRow
	Why     []string
	Bound   string
	Rivals  []rivalRow
	More    []rivalRow // further rows, hidden at first
	Rows    []numberRow
	Medians string
	Shares  []shareRow
	Keys    []colourKey

	Processes  []processRow
	Clocks     []string // how precisely clocks agree
	Stragglers []string

	Unmeasured string

	LayersDrawn, Names, Few          bool
	HasLags, HasWarmup, HasRecompute bool
	Own                              bool // each pipeline has its own weights
	HasSteps, HasMemory, HasLearning bool
}

// Card is a number that is shown in large letters.
type Card struct {
	Name       string `json:"name"`
	Value      string `json:"value"`
	Was        string `json:"was"`                  // "predicted 77.7 ms", or whether the value is predicted or measured
	Difference string `json:"difference,omitempty"` // empty if one side is unknown
	Off        int    `json:"off"`                  // rating of the difference, 0 to 2 (Meanings)
}

// numberRow is one Comparison as text.
type numberRow struct {
	Name, Predicted, Measured, Difference string
	Off                                   int
	First                                 bool // the row is the first of a group, but not of the table
}

// processRow is a row of the table of processes.
type processRow struct {
	Process, Host, Workers, Clock string
}

// shareRow shows how one worker's time in the step is divided.
type shareRow struct {
	Host   string // heading of a host, above its first worker; empty in a run of one process
	Worker string
	Bars   []shareBar
}

type shareBar struct {
	Side  string
	Parts []sharePart
	Text  string
}

type sharePart struct {
	Class, Label, Width string
}

// colourKey is an entry of the legend: a style class and its meaning.
type colourKey struct{ Class, Label string }

func pageViewOf(in Inputs) *pageView {
	predicted, measured := in.numbers()
	rows := compareNumbers(predicted, measured, in.workers())
	v := &pageView{Title: in.Title, Facts: in.Facts, Unmeasured: in.Unmeasured}
	v.HasSteps = in.Simulated != nil || in.Measured != nil
	for _, t := range []*trace.Timeline{in.Simulated, in.Measured} {
		v.HasMemory = v.HasMemory || t != nil && len(t.Memory) > 0
	}
	v.HasLearning = len(in.Losses) > 0 || len(in.Evaluations) > 0
	if m := in.model(); m != in.Title {
		v.Subtitle = m
	}
	v.plan(in, predicted)
	for i := range rows {
		c := &rows[i]
		v.Rows = append(v.Rows, numberRow{c.label(), c.text(c.Predicted), c.text(c.Measured), c.differenceText(), c.off(),
			i > 0 && c.Name != rows[i-1].Name})
	}
	if slices.ContainsFunc(v.Rows, func(r numberRow) bool { return r.Difference != "–" }) {
		v.Means = Meanings()
	}
	if over := measured.which(); over != "" {
		v.Medians = "Measured numbers are " + over + "."
	}
	v.Medians = strings.TrimSpace(v.Medians + " " + in.memoryNote())
	v.Cards = append(Cards(rows), in.learned()...)
	v.shares(in)
	if t := in.Measured; hostsOf(t) != nil {
		for p := range t.Processes {
			v.Processes = append(v.Processes, processRow{fmt.Sprint(p), t.Processes[p].Host, in.heldBy(t, p),
				clockOf(t, &t.Processes[p])})
		}
		v.Clocks = clocks(t)
	}
	v.Stragglers = stragglers(in)
	return v
}

// learned returns the last loss and the results of the last evaluation, with their steps. It leaves out values that
// are not finite.
func (in Inputs) learned() (all []Card) {
	if n := len(in.Losses); n > 0 && finite(in.Losses[n-1].Value) {
		last := in.Losses[n-1]
		all = append(all, Card{Name: "loss", Value: terminal.Loss(last.Value),
			Was: "of step " + terminal.Whole(trace.StepNumber(last.Step))})
	}
	if n := len(in.Evaluations); n > 0 && finite(in.Evaluations[n-1].Loss) {
		last := in.Evaluations[n-1]
		behind := "after step " + terminal.Whole(trace.StepNumber(last.Step))
		all = append(all, Card{Name: "evaluation loss", Value: terminal.Loss(last.Loss), Was: behind})
		if last.Samples > 0 {
			all = append(all, Card{Name: "evaluation accuracy", Value: fmt.Sprintf("%.2f %%", 100*last.Accuracy()), Was: behind})
		}
	}
	return all
}

// Cards returns the known numbers of the whole pipeline, and the memory of the worker with the highest peak.
func Cards(rows []Comparison) (all []Card) {
	add := func(name string, c *Comparison) {
		k := Card{Name: name, Off: c.off()}
		switch {
		case c.Measured == nil:
			k.Value, k.Was = c.text(c.Predicted), "predicted"
		case c.Predicted == nil:
			k.Value, k.Was = c.text(c.Measured), "measured"
		default:
			k.Value, k.Was, k.Difference = c.text(c.Measured), "predicted "+c.text(c.Predicted), c.differenceText()
		}
		all = append(all, k)
	}
	var memory *Comparison
	for i := range rows {
		c := &rows[i]
		switch {
		case c.Worker < 0:
			add(c.Name, c)
		case c.Unit == UnitBytes && (memory == nil || worth(c) > worth(memory)):
			memory = c
		}
	}
	if memory != nil {
		add(fmt.Sprintf("highest peak memory (worker %d)", memory.Worker), memory)
	}
	return all
}

// worth returns the value of a memory row: the measured one if it is known, else the predicted one.
func worth(c *Comparison) float64 {
	if c.Measured != nil {
		return *c.Measured
	}
	return *c.Predicted
}

// shares shows for each worker how the step is divided into kinds of computations and causes of waiting.
func (v *pageView) shares(in Inputs) {
	sim, _ := in.predictedStep()
	run, _ := in.measuredStep()
	used := map[string]bool{}
	for _, t := range []*trace.Timeline{sim, run} {
		for i := range eventsOf(t) {
			if e := &t.Events[i]; e.EndS > e.StartS {
				used["k-"+e.Kind] = true
			}
		}
	}
	rows := make([]shareRow, in.workers())
	for _, side := range []struct {
		name string
		t    *trace.Timeline
	}{{"predicted", sim}, {"measured", run}} {
		if side.t == nil {
			continue
		}
		for w, bar := range shareBars(side.t) {
			bar.Side = side.name
			rows[w].Worker = fmt.Sprintf("worker %d", w)
			rows[w].Bars = append(rows[w].Bars, bar)
			for _, p := range bar.Parts {
				used[p.Class] = true
			}
		}
	}
	for _, h := range in.groups() {
		title := ""
		if len(h.Processes) > 0 {
			title = h.title()
		}
		for _, w := range h.Workers {
			if w < len(rows) && len(rows[w].Bars) > 0 {
				rows[w].Host, title = title, ""
				v.Shares = append(v.Shares, rows[w])
			}
		}
	}
	for _, k := range kinds {
		label := k + " " + trace.Plain(k)
		switch k { // both ends of a transfer over a stage boundary share a colour and an entry
		case "SF":
			used["k-SF"] = used["k-SF"] || used["k-RF"]
			label = "SF, RF activations sent, received"
		case "SB":
			used["k-SB"] = used["k-SB"] || used["k-RB"]
			label = "SB, RB gradients sent, received"
		case "RF", "RB":
			continue
		}
		if used["k-"+k] {
			v.Keys = append(v.Keys, colourKey{"k-" + k, label})
		}
	}
	for _, t := range []*trace.Timeline{sim, run} {
		if t != nil {
			v.Keys = append(v.Keys, stagesOf(t.Events, t.Workers).legend()...)
			break
		}
	}
	if in.hasNeighbours() {
		v.Keys = append(v.Keys, colourKey{"k-F near", "faint: of a step beside it"})
	}
	for _, c := range trace.Causes {
		if class := "c-" + string(c); used[class] {
			v.Keys = append(v.Keys, colourKey{class, c.Label()})
		}
	}
}

// hasNeighbours reports whether boxes of other steps are visible next to the drawn steps.
func (in Inputs) hasNeighbours() bool {
	for _, side := range []struct {
		of  *trace.Timeline
		get func() (shownStep, bool)
	}{{in.Simulated, in.predicted}, {in.Measured, in.measured}} {
		s, ok := side.get()
		if !ok {
			continue
		}
		for _, e := range side.of.Window(s.mark.StartS, s.mark.EndS).Events {
			if e.Step != s.mark.Step && e.EndS > e.StartS {
				return true
			}
		}
	}
	return false
}

func eventsOf(t *trace.Timeline) []trace.Event {
	if t == nil {
		return nil
	}
	return t.Events
}

var shareKinds = []string{"F", "B", "I", "W", "U", "EV"}

func shareBars(t *trace.Timeline) []shareBar {
	start, end := t.Extent()
	out := make([]shareBar, t.Workers)
	if end <= start {
		return out
	}
	byKind := make([]map[string]float64, t.Workers)
	for w := range byKind {
		byKind[w] = map[string]float64{}
	}
	for i := range t.Events {
		e := &t.Events[i]
		if e.Lane == trace.Compute {
			byKind[e.Worker][e.Kind] += e.EndS - e.StartS
		}
	}
	gaps := trace.AllGaps(t)
	for w := range out {
		bar := &out[w]
		add := func(class, label string, s float64) {
			part := s / (end - start)
			if part < .0005 {
				return
			}
			bar.Parts = append(bar.Parts, sharePart{class, fmt.Sprintf("%s %.1f %%", label, 100*part),
				fmt.Sprintf("%.3f%%", 100*part)})
			if bar.Text != "" {
				bar.Text += ", "
			}
			bar.Text += fmt.Sprintf("%s %.1f %%", label, 100*part)
		}
		for _, k := range shareKinds {
			add("k-"+k, trace.Plain(k), byKind[w][k])
		}
		idle := trace.Idle(gaps[w])
		for _, c := range trace.Causes {
			add("c-"+string(c), c.Label(), idle[c])
		}
	}
	return out
}
