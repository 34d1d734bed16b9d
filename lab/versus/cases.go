package versus

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// These are limits of the new build's speed relative to the old build. The new build counts as slower if the whole
// confidence interval of its speed is below the limit.
const (
	TrainingLimit = 0.97
	PlanningLimit = 0.95
	// ProcessesLimit is the limit for the speed of training in processes relative to training in threads.
	ProcessesLimit = 0.94
)

// Subject is a model that is trained, with its data.
type Subject struct {
	Model string
	Data  string
	Batch int
	// Optimizer has the flags of the optimizer and of its learning rate.
	Optimizer []string
}

// visitS is the approximate duration of a visit's steps, in seconds.
const visitS = 2

// leastSteps is the least number of steps of a visit. It is so large that a measurement can leave out the first steps.
// mostSteps is the most steps of a visit, for models whose steps are short.
const (
	leastSteps = 12
	mostSteps  = 400
)

// settings returns the flags of the subject for both builds. It includes the optimizer, because builds have different
// defaults and results are compared with earlier ones.
func (s Subject) settings(workers int) []string {
	return append([]string{"--model", s.Model, "--data", s.Data, "--batch", fmt.Sprint(s.Batch), "--workers",
		fmt.Sprint(workers)}, s.Optimizer...)
}

// stepsFor returns the number of steps of a visit if each step takes stepS seconds.
func stepsFor(stepS float64) int {
	return max(leastSteps, min(mostSteps, int(math.Ceil(visitS/stepS))))
}

// Training compares the two builds by the step of a 1F1B pipeline that has this many workers. The old build plans the
// stages for both builds.
func Training(s Subject, workers, pairs int, limit float64) Case {
	return Case{
		Name: fmt.Sprintf("train %s, %d workers", s.Model, workers), Limit: limit, Pairs: pairs,
		Prepare: func(ctx context.Context, old, new *Build) (func(context.Context, *Build) (float64, error), error) {
			settings := s.settings(workers)
			hardware := []string{"--model", s.Model, "--batch", fmt.Sprint(s.Batch), "--workers", fmt.Sprint(workers)}
			// The number of micro-batches is given, so only one micro-batch size is profiled.
			fixed, err := old.planned(ctx, append(hardware, "--stages", fmt.Sprint(workers), "--schedule", "1f1b",
				"--micro-batches", fmt.Sprint(2*workers), "--recompute", "none")...)
			if err != nil {
				return nil, err
			}
			settings = append(settings, fixed...)
			steps := leastSteps
			for _, b := range []*Build{old, new} { // these first trainings also measure the profiles
				t, err := b.train(ctx, leastSteps, settings...)
				if err != nil {
					return nil, err
				}
				steps = max(steps, stepsFor(t.Measured))
			}
			return func(ctx context.Context, b *Build) (float64, error) {
				t, err := b.train(ctx, steps, settings...)
				return t.Measured, err
			}, nil
		},
	}
}

// Profiling compares the two builds by the duration of a profile with few passes.
func Profiling(s Subject, workers, pairs int) Case {
	size := max(1, s.Batch/4)
	args := []string{"profile", "--model", s.Model, "--batch", fmt.Sprint(s.Batch), "--workers", fmt.Sprint(workers),
		"--sizes", fmt.Sprintf("%d,%d", max(1, size/2), size), "--passes", "3", "-o", "measured.json"}
	return command(fmt.Sprintf("profile %s, 2 sizes, 3 passes", s.Model), pairs, nil, args)
}

// command returns a case that measures the duration of a command. Each build first runs the commands in `before` once.
func command(name string, pairs int, before [][]string, args []string) Case {
	return Case{
		Name: name, Limit: PlanningLimit, Pairs: pairs,
		Prepare: func(ctx context.Context, old, new *Build) (func(context.Context, *Build) (float64, error), error) {
			for _, b := range []*Build{old, new} {
				for _, first := range before {
					if _, err := b.took(ctx, first...); err != nil {
						return nil, err
					}
				}
			}
			return func(ctx context.Context, b *Build) (float64, error) { return b.took(ctx, args...) }, nil
		},
	}
}

// sixteen is a cluster of 16 devices: two servers of eight.
const sixteen = "dapple-a"

// Planning compares the two builds by the durations of planners, for described models and 16 devices. The planner auto,
// which searches, gets only the models in `searched`.
func Planning(planners, models, searched []string, pairs int) []Case {
	var all []Case
	for _, p := range planners {
		of := models
		if p == "auto" {
			of = searched
		}
		for _, m := range of {
			before := [][]string{{"profile", m, "--analytic", "--cluster", sixteen, "--batch", "64", "-o", m + ".json"}}
			all = append(all, command(fmt.Sprintf("plan %s, %s, 16 devices", p, m), pairs, before,
				[]string{"plan", "--planner", p, "--profile", m + ".json", "--cluster", sixteen, "--batch", "64", "--json"}))
		}
	}
	return all
}

// Large compares the two builds by the durations of planners. The planners get a chain of 1,000 layers and 1,024
// devices in four levels.
func Large(planners []string, pairs int) []Case {
	var all []Case
	for _, p := range planners {
		c := command(fmt.Sprintf("plan %s, 1,000 layers, 1,024 devices", p), pairs,
			[][]string{{"import", "--from", "pipedream", "--batch", "64", "chain.txt", "-o", "chain.json"}},
			[]string{"plan", "--planner", p, "--profile", "chain.json", "--cluster", "levels.yaml", "--batch", "64", "--json"})
		prepare := c.Prepare
		c.Prepare = func(ctx context.Context, old, new *Build) (func(context.Context, *Build) (float64, error), error) {
			for _, b := range []*Build{old, new} {
				if err := writeChain(b.dir, 1000); err != nil {
					return nil, err
				}
			}
			return prepare(ctx, old, new)
		}
		all = append(all, c)
	}
	return all
}

// writeChain writes a chain of different layers in the format of PipeDream's artifact, and a cluster of 1,024
// devices. The cluster has four levels, each a quarter as fast as the one inside it.
func writeChain(dir string, layers int) error {
	state := uint32(1)
	random := func() float64 {
		state = state*1664525 + 1013904223
		return float64(state>>8) / (1 << 24)
	}
	var nodes, edges strings.Builder
	for i := range layers {
		at := float64(i) / float64(layers)
		forward := 0.01 + random()
		fmt.Fprintf(&nodes, "node%d -- Linear -- forward_compute_time=%.6f, backward_compute_time=%.6f, "+
			"activation_size=%.1f, parameter_size=%.1f\n",
			i, forward, 2*forward, math.Ceil(20e6*(1.1-at)*random()), math.Ceil(8e6*at*at*random()))
		if i > 0 {
			fmt.Fprintf(&edges, "\tnode%d -- node%d\n", i-1, i)
		}
	}
	cluster := `name: levels
device_types: {v100: {memory: 16GiB, peak: 15.7TFLOPS, memory_bandwidth: 900GB/s}}
device: v100
levels:
  - {name: board, size: 4, bandwidth: 12GB/s, latency: 5us}
  - {name: server, size: 8, bandwidth: 3GB/s, latency: 5us}
  - {name: rack, size: 4, bandwidth: 750MB/s, latency: 5us}
  - {name: hall, size: 8, bandwidth: 187MB/s, latency: 5us}
`
	if err := os.WriteFile(filepath.Join(dir, "chain.txt"), []byte(nodes.String()+edges.String()), 0o644); err != nil {
		return fmt.Errorf("versus: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "levels.yaml"), []byte(cluster), 0o644); err != nil {
		return fmt.Errorf("versus: %w", err)
	}
	return nil
}

// Simulating compares the two builds by simulations of a 24-layer gpt on 16 devices, and by the comparison of
// schedules.
func Simulating(pairs int) []Case {
	gpt := []string{"--model", "gpt", "--set", "layers=24", "--cluster", sixteen, "--batch", "256"}
	var all []Case
	for _, family := range []string{"1f1b", "zb-h1"} {
		file := family + ".json"
		plan := append([]string{"plan"}, append(gpt, "--stages", "16", "--schedule", family, "--micro-batches", "64",
			"-o", file)...)
		simulate := append([]string{"simulate"}, append(gpt, "--plan", file, "-o", "timeline.json.gz")...)
		all = append(all, command("simulate gpt of 24 layers, 16 stages, "+family, pairs, [][]string{plan}, simulate))
	}
	return append(all, command("schedule compare, 8 stages, 64 micro-batches", pairs, nil,
		[]string{"schedule", "compare", "--stages", "8", "--micro-batches", "64"}))
}

// WriteWords writes a text of made-up words, some more frequent than others, for models that read text.
func WriteWords(path string) error {
	rng := rand.New(rand.NewPCG(3, 5))
	words := make([]string, 2000)
	for i := range words {
		letters := make([]byte, 2+rng.IntN(8))
		for k := range letters {
			letters[k] = byte('a' + rng.IntN(26))
		}
		words[i] = string(letters)
	}
	var text strings.Builder
	for text.Len() < 1<<20 {
		at := rng.Float64()
		text.WriteString(words[int(at*at*float64(len(words)))] + " ")
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("versus: %w", err)
	}
	return nil
}
