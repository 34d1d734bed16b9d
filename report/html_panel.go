package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/internal/kind"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/trace"
)

// panel is one step as the page draws it. Times are in nanoseconds from the step's start.
type panel struct {
	Name    string        `json:"name"`
	Took    string        `json:"took"`
	Text    string        `json:"text"`   // its time, in a sentence
	Before  int64         `json:"before"` // when the previous step ended; 0 if it ended before this step began
	Step    int           `json:"step"`   // its StepNumber
	Micros  int           `json:"micros"` // micro-batches in a step; 0: unknown
	Workers int           `json:"workers"`
	EndNS   int64         `json:"end"`
	Events  eventColumns  `json:"events"`
	Gaps    gapColumns    `json:"gaps"`
	Memory  []memoryCurve `json:"memory"` // by worker
}

type eventColumns struct {
	Text    []string `json:"text"`
	Worker  []int    `json:"worker"`
	Compute []int    `json:"compute"` // 1 means that the event is on the compute lane
	Start   []int64  `json:"start"`
	Length  []int64  `json:"length"`
	Bytes   []int64  `json:"bytes"`
	Shade   []int    `json:"shade"` // number of the stage among the stages of its worker, modulo shades
	// Number is the number of the instruction's micro-batch or minibatch, counted from the first one of the panel's
	// step. It is negative for an earlier step. Near is the number of the instruction's step minus that of the panel's
	// step.
	Number []int `json:"number"`
	Near   []int `json:"near"`
	// Version is the version of the weights that an instruction uses. It counts updates from the version that plain
	// training uses for the step's first micro-batch. The value `none` means that the instruction uses no weights. The
	// list is empty if there is only one version.
	Version []int `json:"version,omitempty"`
}

type gapColumns struct {
	Worker  []int    `json:"worker"`
	Start   []int64  `json:"start"`
	Length  []int64  `json:"length"`
	Cause   []int    `json:"cause"`
	Before  []int    `json:"before"`  // index of the event that ended the wait, or -1
	Blocker []int    `json:"blocker"` // the event for which the worker waited, or -1
	Why     []string `json:"why"`
}

type memoryCurve struct {
	At    []int64 `json:"at"`
	Bytes []int64 `json:"bytes"`
}

// moreSteps limits the events of a page. Other steps are included only if the drawn step has at most a third of this
// many events.
const moreSteps = 30_000

// mostSamples is the maximal number of memory samples of a curve: two for each column of a wide screen.
const mostSamples = 4000

// measuredPanels returns the measured steps that a page draws. The first is the one whose time is nearest to the step
// time in the numbers. If it has few boxes, and the events of at least three steps after the skipped ones are recorded,
// three panels follow: the fastest and the slowest of these steps, and the earliest of all recorded steps.
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

// counter numbers the instructions of a step from 0, so that steps can be compared.
type counter struct {
	step  int
	first map[counted]int
	last  int
}

// counted identifies things that are numbered together: the micro-batches of a pipeline, or its minibatches.
type counted struct {
	pipeline    int
	minibatches bool
}

func countedOf(f trace.Fields) counted {
	return counted{f.Pipeline, kind.Of(f.Kind).Minibatch}
}

// counterOf finds the first micro-batch and the first minibatch of a step, by pipeline, among a Timeline's events.
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

// micros returns how many micro-batches the step has; 0 if unknown.
func (c *counter) micros() int {
	if first, ok := c.first[counted{}]; ok && c.last >= first {
		return c.last - first + 1
	}
	return 0
}

// number returns the number of an instruction's micro-batch or minibatch, counted from the first one of the step. If
// the step has none to count from, the number is unchanged.
func (c *counter) number(f trace.Fields) int { return f.Micro - c.first[countedOf(f)] }

// none replaces the version for instructions that use no weights.
const none = 1 << 30

// panelOf returns a step of a Timeline, or all of a Timeline without steps.
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
			continue // a receive takes no time; the gap before the next box shows it
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

// memoryCurves returns each worker's samples. If there are too many, it divides them into parts and keeps the highest
// and the lowest of each part, so that peaks remain.
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

// heldStage is a stage of a pipeline on a worker. It includes the replica because Chimera's two directions are two
// replicas of each stage.
type heldStage struct {
	pipeline, stage, replica int
	updates                  bool // it only updates, because it belongs to a reference model
}

// holdings lists for each worker the stages that it computes. Each list is ordered by pipeline, then direction, then
// number, so that a shade means the same on every worker.
type holdings [][]heldStage

// shades is how many stages of a worker have shades of their own; after that, shades repeat.
const shades = 4

// stagesOf returns the stages that each worker computes in a Timeline.
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

// index returns the position of an instruction's stage in its worker's list; -1 if it is not there.
func (h holdings) index(worker int, f trace.Fields) int {
	return slices.IndexFunc(h[worker], func(s heldStage) bool {
		return s.pipeline == f.Pipeline && s.stage == f.Stage && s.replica == f.Replica
	})
}

// shade returns the shade of an instruction's stage, from 0 to shades-1.
func (h holdings) shade(worker int, f trace.Fields) int {
	return max(0, h.index(worker, f)) % shades
}

// legend explains the shades; it is empty if no worker has more than one stage.
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

// shadeLabel names one of a worker's stages by how it differs from the others: its pipeline, its direction, or its
// chunk.
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
