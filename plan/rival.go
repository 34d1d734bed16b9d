package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
)

// Rival is a plan that another one was preferred to: the best of its kind.
type Rival struct {
	Kind string `json:"kind"` // a schedule, "replicated " and one, "data parallelism", "one worker", or a planner's name
	Name string `json:"name"` // its schedule, stages and workers; warm-up where it is not the schedule's own
	// Stages of the plan: 1 is one worker, or data parallelism. These are absent of a formula.
	Stages       int `json:"stages,omitempty"`
	MicroBatches int `json:"micro_batches,omitempty"`
	MicroBatch   int `json:"micro_batch,omitempty"` // samples
	// What the simulator says of a step, or a formula where Why says so.
	StepS       float64 `json:"step_s"`
	Bubble      float64 `json:"bubble"`
	MemoryBytes int64   `json:"memory_bytes"` // of the fullest device
	Fits        bool    `json:"fits"`
	Why         string  `json:"why"` // what it loses by, in a few words
}

// Title is the rival's name, with its kind where that says something else.
func (r Rival) Title() string {
	kind := strings.TrimPrefix(r.Kind, "replicated ")
	switch {
	case r.Name == "":
		return kind
	case strings.HasPrefix(r.Name, kind):
		return r.Name
	}
	return kind + ": " + r.Name
}

// String is the rival in a sentence without its end.
func (r Rival) String() string {
	return fmt.Sprintf("%s: %.4g ms a step; %s", r.Title(), 1e3*r.StepS, r.Why)
}

// Reasons is why the plan was taken: Why, and a sentence for each of so many rivals.
func (p *Plan) Reasons(rivals int) []string {
	out := slices.Clone(p.Why)
	for _, r := range p.Rivals[:min(rivals, len(p.Rivals))] {
		out = append(out, r.String())
	}
	return out
}

// Summary names a plan by its schedule, its stages and its micro-batches: "1f1b, 3 stages of 1, 3 and 4
// workers, 64 micro-batches of 1". It names no cuts.
func (p *Plan) Summary() string { return p.Layout() + ", " + p.Micros() }

// Micros is how a step's batch is cut: "64 micro-batches of 1".
func (p *Plan) Micros() string { return micros(p.MicroBatches, p.MicroBatch) }

func micros(n, size int) string {
	if n == 1 {
		return fmt.Sprintf("1 micro-batch of %d", size)
	}
	return fmt.Sprintf("%d micro-batches of %d", n, size)
}

// Layout is a plan's schedule, how many stages it has and how many workers they have: "1f1b, 2 stages of 4
// workers", "data parallelism on 4 workers, recomputing".
func (p *Plan) Layout() string {
	text := p.places()
	if len(p.Stages) > 1 {
		text = p.Schedule + ", " + text
	}
	if slices.ContainsFunc(p.Stages, func(s Stage) bool { return s.Recompute.Again() }) {
		text += ", recomputing"
	}
	return text
}

// places is how many stages there are, and how many workers each has.
func (p *Plan) places() string {
	S, workers := len(p.Stages), len(p.Devices())
	places, most, least := 0, 0, workers
	for _, s := range p.Stages {
		n := len(s.Devices)
		places, most, least = places+n, max(most, n), min(least, n)
	}
	switch {
	case S == 1 && workers == 1:
		return "one worker"
	case S == 1:
		return fmt.Sprintf("data parallelism on %d workers", workers)
	case most > 1 && places > workers:
		return fmt.Sprintf("%d stages, each on %d of %d workers", S, most, workers)
	case places > workers:
		return fmt.Sprintf("%d stages on %s", S, terminal.Count(workers, "worker"))
	case most == 1:
		return fmt.Sprintf("%d stages", S)
	case most == least:
		return fmt.Sprintf("%d stages of %d workers", S, most)
	}
	var counts []string
	for _, s := range p.Stages {
		counts = append(counts, fmt.Sprint(len(s.Devices)))
	}
	return fmt.Sprintf("%d stages of %s and %s workers", S, strings.Join(counts[:S-1], ", "), counts[S-1])
}
