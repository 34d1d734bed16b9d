package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
)

// Same reports whether two plans train alike. How they were found, and what is predicted for them, does not count.
func (p *Plan) Same(other *Plan) bool { return reflect.DeepEqual(p.decisions(), other.decisions()) }

// decisions returns the plan without how it was found and what is predicted for it. Equal decisions have one form: a
// plan without replicas has no Replication, and the profile's own order is absent.
func (p *Plan) decisions() Plan {
	d := *p
	d.Planner, d.Objective, d.Predicted, d.LowerBound, d.Why, d.Rivals = "", Objective{}, nil, nil, nil, nil
	if !slices.ContainsFunc(d.Stages, func(s Stage) bool { return len(s.Devices) > 1 }) {
		d.Replication = ""
	}
	own := true
	for at, layer := range d.Order {
		own = own && at == layer
	}
	if own {
		d.Order = nil
	}
	return d
}

// Rival is a plan that lost to the chosen one: the best of its kind.
type Rival struct {
	Kind string `json:"kind"` // a schedule, "replicated " and a schedule, "data parallelism", "one worker" or a planner
	Name string `json:"name"` // its schedule, stages and workers; also its warm-up, unless it is the schedule's usual one
	// Stages is the number of stages: 1 means one worker or data parallelism. Like MicroBatches and MicroBatch it is
	// absent for a rival whose step is computed by a formula.
	Stages       int `json:"stages,omitempty"`
	MicroBatches int `json:"micro_batches,omitempty"`
	MicroBatch   int `json:"micro_batch,omitempty"` // samples of a micro-batch
	// StepS is the time of a step by the simulator, or by a formula if Why says so.
	StepS       float64 `json:"step_s"`
	Bubble      float64 `json:"bubble"`
	MemoryBytes int64   `json:"memory_bytes"` // of the fullest device
	Fits        bool    `json:"fits"`
	Why         string  `json:"why"` // why it lost, in a few words
}

// Title returns the rival's name, with its kind unless the name begins with the kind.
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

// String describes the rival in a sentence without the full stop.
func (r Rival) String() string {
	return fmt.Sprintf("%s: %.4g ms a step; %s", r.Title(), 1e3*r.StepS, r.Why)
}

// Reasons says why the plan was chosen. It returns p.Why, and a sentence for each of the first `rivals` rivals.
func (p *Plan) Reasons(rivals int) []string {
	out := slices.Clone(p.Why)
	for _, r := range p.Rivals[:min(rivals, len(p.Rivals))] {
		out = append(out, r.String())
	}
	return out
}

// Summary describes a plan by its schedule, stages and micro-batches: "1f1b, 3 stages of 1, 3 and 4 workers, 64
// micro-batches of 1". Summary leaves out the cuts.
func (p *Plan) Summary() string { return p.Layout() + ", " + p.Micros() }

// Micros describes how a step's batch is divided: "64 micro-batches of 1".
func (p *Plan) Micros() string { return micros(p.MicroBatches, p.MicroBatch) }

func micros(n, size int) string {
	if n == 1 {
		return fmt.Sprintf("1 micro-batch of %d", size)
	}
	return fmt.Sprintf("%d micro-batches of %d", n, size)
}

// Layout describes a plan's schedule, its number of stages and their workers: "1f1b, 2 stages of 4 workers", "data
// parallelism on 4 workers, recomputing".
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

// places describes the number of stages and the workers of each.
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
