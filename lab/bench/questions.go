package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// PlannedIn says how long a planner took to answer a question.
type PlannedIn struct {
	Model    string  `json:"model"`
	Layers   int     `json:"layers"`
	Devices  int     `json:"devices"`
	Levels   []int   `json:"levels"` // sizes of the cluster's levels, innermost first
	Cluster  string  `json:"cluster,omitempty"`
	Planner  string  `json:"planner"`
	Formula  string  `json:"formula"`
	Seconds  float64 `json:"seconds"`
	Stages   int     `json:"stages,omitempty"`
	Refusal  string  `json:"refusal,omitempty"` // why there is no plan
	TimedOut bool    `json:"timed_out,omitempty"`
	// PublishedS is the time of the published planner for the same question, on another machine.
	PublishedS float64 `json:"published_s,omitempty"`
}

func PrintPlanned(out io.Writer, r PlannedIn) {
	took := fmt.Sprintf("%.3g ms", 1000*r.Seconds)
	stages := fmt.Sprint(r.Stages)
	switch {
	case r.TimedOut:
		took, stages = fmt.Sprintf("over %.3g s", r.Seconds), "-"
	case r.Refusal != "":
		stages = r.Refusal
	}
	published := ""
	if r.PublishedS > 0 {
		published = fmt.Sprintf("%.3g s, %.3g times", r.PublishedS, r.PublishedS/r.Seconds)
	}
	devices := levelSizes(r.Levels)
	if r.Cluster != "" {
		devices = r.Cluster
	}
	fmt.Fprintf(out, "| %s | %d | %s | %s | %s | %s | %s | %s |\n", r.Model, r.Layers, devices, r.Planner, r.Formula,
		took, stages, published)
}

// PlanQuestion is a profile and a cluster to plan for.
type PlanQuestion struct {
	profile *profile.Profile
	cluster *cluster.Cluster
	batch   int
	named   bool // rows show the cluster's name
	// published is the time of each published planner for this question, in seconds.
	published map[string]float64
}

// Ask measures the time to make a plan, and returns the time of the fastest of three tries. It makes no further try
// after one that takes more than a second or finds no plan.
func (q PlanQuestion) Ask(ctx context.Context, p plan.Planner, formula string, limit time.Duration) (PlannedIn, error) {
	row := PlannedIn{Model: q.profile.Model, Layers: len(q.profile.Layers), Devices: len(q.cluster.Devices),
		Planner: p.Name, Formula: formula}
	for _, l := range q.cluster.Levels {
		row.Levels = append(row.Levels, l.Size)
	}
	if q.named {
		row.Cluster = q.cluster.Name
	}
	if formula == "artifact" {
		row.PublishedS = q.published[p.Name]
	}
	for visit := range 3 {
		within, stop := context.WithTimeout(ctx, limit)
		start := time.Now()
		pl, err := p.Plan(within, plan.Request{Profile: q.profile, Cluster: q.cluster, Batch: q.batch, Formula: formula})
		took := time.Since(start).Seconds()
		over := within.Err() != nil
		stop()
		if ctx.Err() != nil {
			return row, ctx.Err()
		}
		if visit == 0 || took < row.Seconds {
			row.Seconds = took
		}
		if err != nil {
			row.TimedOut = over && errors.Is(err, context.DeadlineExceeded)
			row.Refusal = err.Error()
			return row, nil
		}
		row.Stages = len(pl.Stages)
		if took > 1 {
			break
		}
	}
	return row, nil
}

// PlanQuestions returns the questions for planners. Some are the described models and the given profiles on 4 servers
// of 4 devices. The others are chains of layers on 16 to 1,024 devices, in 2 to 4 levels.
func PlanQuestions(paths []string) ([]PlanQuestion, error) {
	sixteen := benchCluster(4, 4)
	questions, err := questionsOn(sixteen, paths)
	if err != nil {
		return nil, err
	}
	for _, layers := range []int{125, 250, 500, 1000} {
		questions = append(questions, PlanQuestion{profile: chainProfile(layers), cluster: sixteen, batch: 64})
	}
	for _, sizes := range [][]int{{4, 4, 4}, {4, 4, 4, 4}, {4, 8, 4, 8}} {
		questions = append(questions, PlanQuestion{profile: chainProfile(1000), cluster: benchCluster(sizes...), batch: 64})
	}
	return questions, nil
}

// ClusterQuestions returns questions for the described models and the given profiles on each of these clusters.
func ClusterQuestions(names, paths []string) (questions []PlanQuestion, err error) {
	for _, name := range names {
		c, err := cluster.Read(name)
		if err != nil {
			return nil, err
		}
		these, err := questionsOn(c, paths)
		if err != nil {
			return nil, err
		}
		for i := range these {
			these[i].named = true
		}
		questions = append(questions, these...)
	}
	return questions, nil
}

// questionsOn returns questions for the described models and the given profiles on one cluster.
func questionsOn(c *cluster.Cluster, paths []string) (questions []PlanQuestion, err error) {
	for _, family := range model.Families() {
		m, err := model.Build(family.Name, nil)
		if err != nil {
			return nil, fmt.Errorf("bench: %w", err)
		}
		p, err := profile.Analytic(m, c.DeviceTypes, []int{1, 2, 4, 8, 16, 32, 64}, "sgd", 0)
		if err != nil {
			return nil, fmt.Errorf("bench: %w", err)
		}
		questions = append(questions, PlanQuestion{profile: p, cluster: c, batch: 64})
	}
	for _, path := range paths {
		p, err := profile.Read(path)
		if err != nil {
			return nil, err
		}
		sizes := p.Sizes(c.Devices[0])
		if len(sizes) == 0 {
			return nil, fmt.Errorf("bench: %s has no cost for %s, nor for any device; it has %v", path, c.Devices[0],
				p.DeviceTypes())
		}
		questions = append(questions, PlanQuestion{profile: p, cluster: c, batch: sizes[len(sizes)-1]})
	}
	return questions, nil
}

// benchCluster returns a cluster with levels of these sizes, innermost first. Each level is a quarter as fast as the
// one inside it.
func benchCluster(sizes ...int) *cluster.Cluster {
	c := &cluster.Cluster{Name: fmt.Sprint(sizes), DeviceTypes: map[string]cluster.DeviceType{
		"v100": {MemoryBytes: 16 << 30, PeakFLOPS: 15.7e12, MemoryBandwidthBytesPerSecond: 900e9}}}
	devices, bandwidth := 1, 12e9
	for i, size := range sizes {
		devices *= size
		c.Levels = append(c.Levels, cluster.Level{Name: fmt.Sprint("level", i), Size: size,
			BandwidthBytesPerSecond: bandwidth, LatencyS: 5e-6, FullDuplex: true})
		bandwidth /= 4
	}
	for range devices {
		c.Devices = append(c.Devices, "v100")
	}
	return c
}

// chainProfile returns a chain of n layers of random costs. On average, outputs shrink and weights grow along the
// chain.
func chainProfile(n int) *profile.Profile {
	p := &profile.Profile{Version: profile.Version, Model: "chain", ModelID: fmt.Sprint("chain-", n),
		Source: profile.SourceImported}
	state := uint32(1)
	random := func() float64 {
		state = state*1664525 + 1013904223
		return float64(state>>8) / (1 << 24)
	}
	for i := range n {
		at := float64(i) / float64(n)
		output := int64(20e6 * (1.1 - at) * random())
		p.Layers = append(p.Layers, profile.Layer{
			Name: fmt.Sprint("layer", i), Kind: "linear", From: []int{i - 1}, TiedTo: -1,
			ParameterBytes: int64(8e6 * at * at * random()),
			Costs: []profile.Cost{{Device: "v100", MicroBatch: 64, ForwardS: 1e-3 * random(), BackwardS: 2e-3 * random(),
				OutputBytes: output, SavedBytes: output}},
		})
	}
	return p
}
