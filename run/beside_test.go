package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

// besideConfig returns a random run of several pipelines with the reference beside them.
func besideConfig(t testing.TB, g *rand.Rand) Config {
	c := elasticConfig(t, g)
	c.Plan.Elastic.Reference = plan.Beside
	if g.IntN(5) == 0 {
		c.Plan.Elastic.Order = plan.UpdateFirst
	}
	for l := range c.Model.Layers {
		for p := range c.Model.Layers[l].Params {
			c.Model.Layers[l].Params[p].Tied = ""
		}
	}
	c.Plan.ModelID = c.Model.ID()
	for i := range c.Plan.Stages {
		c.Plan.Stages[i].Devices = []int{i}
	}
	c.Train.Steps = 1 + g.IntN(12)
	return c
}

// tardy is an engine where some updates of references beside pipelines are slow.
type tardy struct {
	engine.Engine
	seed uint64
	most time.Duration
}

type tardyDevice struct {
	engine.Device
	of   *tardy
	rank uint64
}

type tardyBeside struct {
	engine.Device
	g    *rand.Rand
	most time.Duration
}

func (s *tardy) Open(worker, threads int) (engine.Device, error) {
	d, err := s.Engine.Open(worker, threads)
	return &tardyDevice{d, s, uint64(worker)}, err
}

func (d *tardyDevice) Beside(threads int) (engine.Device, error) {
	b, err := d.Device.Beside(threads)
	return &tardyBeside{b, rand.New(rand.NewPCG(d.of.seed, d.rank)), d.of.most}, err
}

func (d *tardyBeside) Begin() engine.Mark {
	if d.g.IntN(3) == 0 {
		time.Sleep(time.Duration(d.g.Int64N(int64(d.most))))
	}
	return d.Device.Begin()
}

// besideTwin computes the equations of AvgPipe §3.2, one pipeline after the other. Each update uses the version of the
// reference that the record lists for it.
func besideTwin(t testing.TB, c Config, seen []trace.Seen) map[string]process.Weight {
	t.Helper()
	versions := map[trace.Seen]int{}
	for _, s := range seen {
		at := s
		at.Version = 0
		versions[at] = s.Version
	}
	stageOf := func(layer int) int {
		return slices.IndexFunc(c.Plan.Stages, func(s plan.Stage) bool { return layer <= s.LastLayer })
	}
	a := &averaged{c: c, sees: func(layer, pipeline, step int) int {
		version, known := versions[trace.Seen{Step: step, Stage: stageOf(layer), Pipeline: pipeline}]
		if !known {
			t.Errorf("the record does not say what pipeline %d saw in step %d on stage %d", pipeline, step, stageOf(layer))
		}
		return version
	}}
	return a.weights(t)
}

// recordedBeside checks a record. The number of updates must be steps x stages x pipelines. An update may have seen at
// most as many updates of the reference as there are iterations before its own. It must have seen at least as many as
// each earlier update of the same pipeline on the same stage.
func recordedBeside(c Config, seen []trace.Seen) error {
	if want := c.Train.Steps * len(c.Plan.Stages) * c.Plan.Elastic.Pipelines; len(seen) != want {
		return fmt.Errorf("%d updates, want %d", len(seen), want)
	}
	least := map[[2]int]int{}
	for _, s := range seen {
		at := [2]int{s.Stage, s.Pipeline}
		if s.Version < least[at] || s.Version > s.Step {
			return fmt.Errorf("%+v, behind one that saw %d", s, least[at])
		}
		least[at] = s.Version
	}
	return nil
}

func staleOnes(seen []trace.Seen) (n int) {
	for _, s := range seen {
		if s.Version < s.Step {
			n++
		}
	}
	return n
}

// A run with the reference beside its pipelines records which version of the reference each update used. The paper's
// equations with these versions, and a replay of the run, give the same bits as the run itself. This holds however late
// the reference was.
func TestBesideEqualsItsRecord(t *testing.T) {
	stale := 0
	eachSeed(t, cases(100, 400), func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 71))
		c := besideConfig(t, g)
		if seed%2 == 0 {
			c.Engine = &tardy{c.Engine, seed, 2 * time.Millisecond}
		}
		if seed%5 == 0 {
			c.Wire.Carriers = haste(g)
		}
		c.Keep.Steps = 1 + g.IntN(c.Train.Steps)
		got := train(t, c)
		seen := got.Timeline.Seen
		if err := recordedBeside(c, seen); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		stale += staleOnes(seen)
		twin := c
		twin.Engine = ref.New()
		if err := equalCase(twin, besideTwin(t, twin, seen), got.Weights); err != nil {
			t.Fatalf("seed %d: the twin: %v\n%+v", seed, err, *c.Plan.Elastic)
		}
		c.Engine, c.Wire.Carriers, c.Train.ReplaySeen = ref.New(), nil, seen
		again := train(t, c)
		if err := sameWeights(again.Weights, got.Weights); err != nil || !slices.Equal(again.Timeline.Seen, seen) {
			t.Fatalf("seed %d: the replay: %v\n%v\n%v", seed, err, again.Timeline.Seen, seen)
		}
	})
	if stale < 50 {
		t.Errorf("%d updates saw an older reference than there could have been", stale)
	}
}

// If every update sees the newest reference, the run ends with the same bits as with an inline reference.
func TestBesideSeenAtOnceIsInline(t *testing.T) {
	for seed := range uint64(10) {
		c := besideConfig(t, rand.New(rand.NewPCG(seed, 72)))
		for step := range c.Train.Steps {
			for s := range c.Plan.Stages {
				for p := range c.Plan.Elastic.Pipelines {
					c.Train.ReplaySeen = append(c.Train.ReplaySeen, trace.Seen{Step: step, Stage: s, Pipeline: p, Version: step})
				}
			}
		}
		inline := c
		e := *c.Plan.Elastic
		e.Reference = plan.Inline
		pl := *c.Plan
		pl.Elastic = &e
		inline.Plan, inline.Train.ReplaySeen = &pl, nil
		if err := sameWeights(train(t, c).Weights, train(t, inline).Weights); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// A run may be in several processes, on any carrier and with evaluations. Its weights equal those of a run in one
// process that replays the recorded references.
func TestBesideOverProcesses(t *testing.T) {
	eachSeed(t, cases(24, 100), func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 73))
		c := besideConfig(t, g)
		c.Train.Steps = 4 + g.IntN(10)
		if seed%3 == 0 {
			c.Data.Test, c.Train.EvalRows, c.Train.EvalEvery = c.Data.Train, 7, 1+g.IntN(5)
		}
		if seed%2 == 0 {
			c.Engine = &tardy{c.Engine, seed, time.Millisecond}
		}
		workers := len(c.Plan.Devices())
		got := in(g, workers, 1+g.IntN(workers)).train(t.Context(), t, c).whole(t)
		if err := recordedBeside(c, got.Timeline.Seen); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		twin := c
		twin.Engine = ref.New()
		if err := equalCase(twin, besideTwin(t, twin, got.Timeline.Seen), got.Weights); err != nil {
			t.Fatalf("seed %d: the twin: %v", seed, err)
		}
		c.Wire.Carriers, c.Machine.World, c.Hooks, c.Train.ReplaySeen = nil, nil, Hooks{}, got.Timeline.Seen
		c.Engine = ref.New()
		if err := sameWeights(train(t, c).Weights, got.Weights); err != nil {
			t.Fatalf("seed %d: the replay: %v", seed, err)
		}
	})
}

// A run is stopped and resumed from its checkpoint. It ends with the same bits as an uninterrupted run that replays the
// references of both records.
func TestBesideIsStoppedAndResumed(t *testing.T) {
	stops := 0
	for seed := range cases(12, 60) {
		g := rand.New(rand.NewPCG(seed, 74))
		c := besideConfig(t, g)
		c.Train.Steps, c.Keep.Steps = 40, 40
		if seed%2 == 0 {
			c.Engine = &tardy{c.Engine, seed, 2 * time.Millisecond}
		}
		c.Checkpoint.Dir = t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		at := g.IntN(20)
		first := c
		first.Hooks.OnStep = func(r StepReport) {
			if r.Step == at {
				cancel()
			}
		}
		stopped, err := Train(ctx, first)
		cancel()
		if err != nil || stopped.Steps <= at || stopped.Leaked != 0 {
			t.Fatalf("seed %d: it did not end as it should: %v", seed, err)
		}
		if stopped.Steps == c.Train.Steps {
			continue
		}
		stops++
		second := c
		second.Resume.At = c.Checkpoint.Dir
		got := train(t, second)
		all := slices.Concat(stopped.Timeline.Seen, got.Timeline.Seen)
		if err := recordedBeside(c, all); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		c.Engine, c.Checkpoint = ref.New(), Checkpointing{}
		if err := equalCase(c, besideTwin(t, c, all), got.Weights); err != nil {
			t.Fatalf("seed %d: stopped behind %d steps and resumed: %v", seed, stopped.Steps, err)
		}
		c.Train.ReplaySeen = all
		if err := sameWeights(train(t, c).Weights, got.Weights); err != nil {
			t.Fatalf("seed %d: the replay of both: %v", seed, err)
		}
	}
	if stops < 3 {
		t.Errorf("%d runs were stopped", stops)
	}
}

// On torch too, a run and its replay with the recorded references have the same bits. The models have dropout, or
// convolutions and running statistics.
func TestTorchBeside(t *testing.T) {
	e := torchEngine(t)
	for _, family := range []struct {
		name     string
		settings map[string]any
		classes  int
	}{
		{"gpt", map[string]any{"layers": 2, "width": 16, "heads": 2, "context": 8, "vocabulary": 30, "dropout": 0.1}, 30},
		{"convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{4, 8}, "dense": []int{16}, "batch_norm": true},
			10},
	} {
		m := build(t, family.name, family.settings)
		c := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), 2), 2, 3, "elastic"), family.classes, 12)
		c.Plan.Weights, c.Plan.Elastic = "elastic", plan.NewElastic(3)
		c.Plan.Elastic.Reference = plan.Beside
		c.Train.Optimizer, _ = optim.Default(optim.AdamW)
		c.Train.Rate.Base, c.Train.Clip = 0.01, 0.5
		got := train(t, c)
		if err := recordedBeside(c, got.Timeline.Seen); err != nil {
			t.Error(err)
		}
		c.Train.ReplaySeen = got.Timeline.Seen
		if err := sameWeights(train(t, c).Weights, got.Weights); err != nil {
			t.Errorf("%s: the replay: %v", family.name, err)
		}
	}
}

// On asynchronous devices with delays, a run ends with the same bits as its replay. If the run uses a pipeline's steps
// without waiting for them, the bits differ.
func TestBesideOnLateDevices(t *testing.T) {
	for _, without := range []process.Wait{"", process.WaitSteps} {
		c := besideConfig(t, rand.New(rand.NewPCG(3, 75)))
		c.Train.Steps = 10
		c.Engine, c.without = ref.Lazy(ref.Lateness{Seed: 5, OneIn: 1, Most: 400 * time.Microsecond}), without
		got, err := Train(t.Context(), c)
		if err == nil {
			c.Engine, c.without, c.Train.ReplaySeen = ref.New(), "", got.Timeline.Seen
			err = sameWeights(train(t, c).Weights, got.Weights)
		}
		if (err == nil) != (without == "") {
			t.Errorf("without %q: %v", without, err)
		}
	}
}

// Settings that a run with the reference beside its pipelines cannot carry out are refused with a message that names
// them.
func TestBesideRefusals(t *testing.T) {
	fine := besideConfig(t, rand.New(rand.NewPCG(8, 76)))
	fine.Train.Steps = 4
	seen := train(t, fine).Timeline.Seen
	tied := waiting(t)
	tied.Plan.Schedule, tied.Plan.Weights, tied.Plan.Elastic = "elastic", "elastic", plan.NewElastic(2)
	tied.Plan.Elastic.Reference = plan.Beside
	for i := range tied.Plan.Stages {
		tied.Plan.Stages[i].Devices = []int{i}
	}
	for _, c := range []struct {
		want   string
		change func(*Config)
	}{
		{"share a parameter, of which each would see another reference", func(c *Config) { *c = tied }},
		{"is on 2 workers, each of which would see another reference", func(c *Config) {
			*c = tied
			pl := *c.Plan
			pl.Stages = slices.Clone(pl.Stages)
			pl.Stages[0].Devices, pl.Stages[1].Devices = []int{0, 1}, []int{2}
			c.Plan = &pl
		}},
		{"no reference beside pipelines", func(c *Config) {
			c.Plan.Elastic = plan.NewElastic(2)
			c.Train.ReplaySeen = seen
		}},
		{"the recorded order of", func(c *Config) { c.Train.Steps, c.Train.ReplaySeen = 5, seen }},
		{"the order to replay goes on across step 2", func(c *Config) {
			c.Data.Test, c.Train.EvalEvery = c.Data.Train, 2
			c.Train.ReplaySeen = slices.Clone(seen)
			for i := range c.Train.ReplaySeen {
				c.Train.ReplaySeen[i].Version = 0
			}
		}},
		{"saw the reference behind 3 updates", func(c *Config) {
			c.Train.ReplaySeen = slices.Clone(seen)
			c.Train.ReplaySeen[0].Version = 3
		}},
	} {
		config := fine
		pl := *fine.Plan
		pl.Stages = slices.Clone(pl.Stages)
		config.Plan = &pl
		c.change(&config)
		if _, err := Train(t.Context(), config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want it to say %q", err, c.want)
		}
	}
}
