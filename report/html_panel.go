package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/kind"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/trace"
)

// panel is one step. Times are nanoseconds from its start.
type panel struct {
	Name    string        `json:"name"`
	Took    string        `json:"took"`
	Text    string        `json:"text"`   // what it took, in a sentence
	Before  int64         `json:"before"` // when the step before it ended; 0: not in it
	Step    int           `json:"step"`   // its StepNumber
	Micros  int           `json:"micros"` // micro-batches of a step; 0 where that is not known
	Workers int           `json:"workers"`
	EndNS   int64         `json:"end"`
	Events  eventColumns  `json:"events"`
	Gaps    gapColumns    `json:"gaps"`
	Memory  []memoryCurve `json:"memory"` // by worker
}

type eventColumns struct {
	Text    []string `json:"text"`
	Worker  []int    `json:"worker"`
	Compute []int    `json:"compute"` // 1: on the compute lane
	Start   []int64  `json:"start"`
	Length  []int64  `json:"length"`
	Bytes   []int64  `json:"bytes"`
	Shade   []int    `json:"shade"` // which of the worker's stages it is for
	// Number is that of the micro-batch from the step's first one, or of the minibatch: less than 0 of a step before, and
	// Near how many steps behind the panel's the instruction's is.
	Number []int `json:"number"`
	Near   []int `json:"near"`
	// Version is the weights that are used, in updates from those that plain training would have for the step's first
	// micro-batch; none stands for what uses no weights. Empty where all is of one version.
	Version []int `json:"version,omitempty"`
}

type gapColumns struct {
	Worker  []int    `json:"worker"`
	Start   []int64  `json:"start"`
	Length  []int64  `json:"length"`
	Cause   []int    `json:"cause"`
	Before  []int    `json:"before"`  // the event that ended it, or -1
	Blocker []int    `json:"blocker"` // the event it waited for, or -1
	Why     []string `json:"why"`
}

type memoryCurve struct {
	At    []int64 `json:"at"`
	Bytes []int64 `json:"bytes"`
}

// moreSteps is the most events for which the fastest and the slowest step go into the page too.
const moreSteps = 30_000

// mostSamples is the most memory samples a curve keeps: two for each column of a wide screen.
const mostSamples = 4000

// measuredPanels is the measured steps that a page draws: first the one that the numbers are shown by. Where they
// have few boxes the fastest, the slowest and the earliest follow, of those that are kept.
func (in Inputs) measuredPanels() []panel {
	t, skip := in.Measured, in.skip(len(in.Measured.Steps))
	shown, marked := in.measured()
	panels := []panel{in.panelOf(t, shown, marked)}
	steps := t.Kept(skip)
	if len(steps) < 3 || 3*len(panels[0].Events.Text) > moreSteps {
		return panels
	}
	took := map[int]float64{}
	for k, s := range t.Took(0) {
		took[t.Steps[k].Step] = s
	}
	first := t.Kept(0)[0]
	slices.SortStableFunc(steps, func(a, b trace.StepMark) int { return cmp.Compare(took[a.Step], took[b.Step]) })
	for _, more := range []struct {
		mark  trace.StepMark
		which string
	}{{steps[0], "fastest"}, {steps[len(steps)-1], "slowest"}, {first, "earliest"}} {
		s := shownStep{mark: more.mark, tookS: took[more.mark.Step], which: more.which + " of those kept"}
		panels = append(panels, in.panelOf(t, s, true))
	}
	return panels
}

// counter numbers the instructions of a step from 0, as those of any other step are.
type counter struct {
	step  int
	first map[counted]int
	last  int
}

// counted is what is counted together: micro-batches, or minibatches, of a pipeline.
type counted struct {
	pipeline    int
	minibatches bool
}

func countedOf(f trace.Fields) counted {
	return counted{f.Pipeline, kind.Of(f.Kind).Minibatch}
}

// counterOf finds the first micro-batch of a step among a Timeline's events.
func counterOf(t *trace.Timeline, step int) counter {
	c := counter{step, map[counted]int{}, -1}
	for i := range t.Events {
		e := &t.Events[i]
		f, ok := trace.ParseFields(e.Instruction)
		if !ok || e.Step != step || !trace.OfStep(e) {
			continue
		}
		k := countedOf(f)
		if first, seen := c.first[k]; !seen || f.Micro < first {
			c.first[k] = f.Micro
		}
		if !k.minibatches {
			c.last = max(c.last, f.Micro)
		}
	}
	return c
}

// micros is how many micro-batches the step has; 0 where that is not known.
func (c *counter) micros() int {
	if first, ok := c.first[counted{}]; ok && c.last >= first {
		return c.last - first + 1
	}
	return 0
}

// number is an instruction's, from the step's first one; as it stands where the step has none of its kind.
func (c *counter) number(f trace.Fields) int { return f.Micro - c.first[countedOf(f)] }

// none is no version.
const none = 1 << 30

// panelOf is a step of a Timeline, or all of one that marks none.
func (in Inputs) panelOf(whole *trace.Timeline, s shownStep, marked bool) panel {
	t, text := cut(whole, s, marked)
	count := counterOf(whole, s.mark.Step)
	_, end := t.Extent()
	p := panel{Name: "run", Took: terminal.Duration(end), Text: text, Step: trace.StepNumber(s.mark.Step),
		Micros: count.micros(), Workers: t.Workers, EndNS: nanoseconds(end), Memory: memoryCurves(t)}
	if marked {
		p.Name, p.Took, p.Before = s.name(), terminal.Duration(s.tookS), max(0, nanoseconds(s.beforeS()))
	}
	p.Events = eventColumns{Text: []string{}, Worker: []int{}, Compute: []int{}, Start: []int64{}, Length: []int64{},
		Bytes: []int64{}, Shade: []int{}, Number: []int{}, Near: []int{}}
	held := stagesOf(t.Events, t.Workers)
	type place struct {
		worker int
		text   string
	}
	at := make(map[place]int, len(t.Events))
	for i := range t.Events {
		e := &t.Events[i]
		if e.EndS <= e.StartS && e.Kind != "DR" {
			continue // a receive takes no time; the gap before the next box tells of it
		}
		at[place{e.Worker, e.Instruction}] = len(p.Events.Text)
		c := &p.Events
		lane := 0
		if e.Lane == trace.Compute {
			lane = 1
		}
		start := nanoseconds(e.StartS)
		c.Text, c.Worker, c.Compute = append(c.Text, e.Instruction), append(c.Worker, e.Worker), append(c.Compute, lane)
		c.Start, c.Length = append(c.Start, start), append(c.Length, nanoseconds(e.EndS)-start)
		c.Bytes = append(c.Bytes, e.Bytes)
		shade, number := 0, 0
		if f, ok := trace.ParseFields(e.Instruction); ok {
			shade, number = held.shade(e.Worker, f), count.number(f)
		}
		near := 0
		if marked {
			near = e.Step - count.step
		}
		if len(in.Lags) > 0 {
			version := none
			if f, ok := trace.ParseFields(e.Instruction); ok {
				if at, uses := in.version(f, number, count.first[counted{f.Pipeline, false}]); uses {
					version = at
				}
			}
			c.Version = append(c.Version, version)
		}
		c.Shade, c.Number, c.Near = append(c.Shade, shade), append(c.Number, number), append(c.Near, near)
	}
	index := func(worker int, text string) int {
		if i, ok := at[place{worker, text}]; ok && text != "" {
			return i
		}
		return -1
	}
	g := &p.Gaps
	*g = gapColumns{Worker: []int{}, Start: []int64{}, Length: []int64{}, Cause: []int{}, Before: []int{},
		Blocker: []int{}, Why: []string{}}
	for w, gaps := range trace.AllGaps(t) {
		for _, gap := range gaps {
			start := nanoseconds(gap.StartS)
			g.Worker, g.Start = append(g.Worker, w), append(g.Start, start)
			g.Length = append(g.Length, nanoseconds(gap.EndS)-start)
			g.Cause = append(g.Cause, slices.Index(trace.Causes, gap.Cause))
			g.Before = append(g.Before, index(w, gap.Before))
			g.Blocker = append(g.Blocker, index(gap.BlockerWorker, gap.Blocker))
			g.Why = append(g.Why, gap.Why)
		}
	}
	return p
}

// memoryCurves is each worker's samples; where there are too many, the highest and the
// lowest of each part, so that peaks stay.
func memoryCurves(t *trace.Timeline) []memoryCurve {
	out := make([]memoryCurve, t.Workers)
	byWorker := make([][]trace.MemorySample, t.Workers)
	for _, m := range t.Memory {
		byWorker[m.Worker] = append(byWorker[m.Worker], m)
	}
	for w, samples := range byWorker {
		slices.SortStableFunc(samples, func(a, b trace.MemorySample) int {
			return cmp.Compare(a.AtS, b.AtS)
		})
		c := memoryCurve{At: []int64{}, Bytes: []int64{}}
		for _, m := range thinned(samples, mostSamples, func(m trace.MemorySample) float64 { return float64(m.Bytes) }) {
			c.At, c.Bytes = append(c.At, nanoseconds(m.AtS)), append(c.Bytes, m.Bytes)
		}
		out[w] = c
	}
	return out
}

// heldStage is a stage of a pipeline on a worker; replica is told apart because Chimera's two
// directions are two replicas of each stage.
type heldStage struct {
	pipeline, stage, replica int
	updates                  bool // and nothing else: it is of a reference model
}

// holdings is, for each worker, the stages that it computes for: by pipeline, then by
// direction, then ascending, so that a shade means the same on every worker.
type holdings [][]heldStage

// shades is how many stages of a worker are told apart by shade; further ones begin anew.
const shades = 4

// stagesOf is what the computations of a Timeline are for.
func stagesOf(events []trace.Event, workers int) holdings {
	held := make(holdings, workers)
	for i := range events {
		e := &events[i]
		if f, ok := trace.ParseFields(e.Instruction); ok && e.Lane == trace.Compute && trace.IsBusy(e.Kind) {
			at := held.index(e.Worker, f)
			if at < 0 {
				held[e.Worker] = append(held[e.Worker], heldStage{f.Pipeline, f.Stage, f.Replica, true})
				at = len(held[e.Worker]) - 1
			}
			if e.Kind != "U" {
				held[e.Worker][at].updates = false
			}
		}
	}
	for _, list := range held {
		slices.SortFunc(list, func(a, b heldStage) int {
			return cmp.Or(a.pipeline-b.pipeline, a.replica-b.replica, a.stage-b.stage)
		})
	}
	return held
}

// index is where an instruction's stage is in its worker's list; -1: nowhere.
func (h holdings) index(worker int, f trace.Fields) int {
	return slices.IndexFunc(h[worker], func(s heldStage) bool {
		return s.pipeline == f.Pipeline && s.stage == f.Stage && s.replica == f.Replica
	})
}

// shade tells an instruction's stage from the others of its worker, 0 to shades-1.
func (h holdings) shade(worker int, f trace.Fields) int {
	return max(0, h.index(worker, f)) % shades
}

// legend says what the shades stand for; nothing where every worker has one stage.
func (h holdings) legend() []colourKey {
	var most []heldStage
	for _, list := range h {
		if len(list) > len(most) {
			most = list
		}
	}
	var keys []colourKey
	for c := range min(len(most), shades) {
		if len(most) > 1 {
			keys = append(keys, colourKey{Class: fmt.Sprintf("k-F s%d", c), Label: shadeLabel(most, c)})
		}
	}
	return keys
}

// shadeLabel names one of a worker's stages by what tells it from the others: its
// pipeline, its direction, or that it is another chunk of the model.
func shadeLabel(held []heldStage, c int) string {
	first, last := held[0], held[len(held)-1]
	nth := [shades]string{"first", "second", "third", "fourth"}[c]
	pipelines, directions := last.pipeline-first.pipeline+1, last.replica-first.replica+1
	switch len(held) {
	case pipelines:
		if held[c].updates && held[c].pipeline > 0 {
			return fmt.Sprintf("reference (pipeline %d)", held[c].pipeline)
		}
		return fmt.Sprintf("pipeline %d", held[c].pipeline)
	case directions:
		return nth + " direction"
	}
	return nth + " chunk of a worker"
}
