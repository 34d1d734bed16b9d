package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// epochConfig returns a random stream with whole groups, and the period of its stages' saves. `ok` is false if depths,
// replicas and weights do not fit together.
func epochConfig(t testing.TB, g *rand.Rand, policy schedule.Policy) (c Config, every int, ok bool) {
	c = streamConfig(t, ref.New(), g, policy)
	if g.IntN(4) == 0 && policy == schedule.DoubleBuffered {
		c = asyncConfig(t, ref.New(), g)
	} else if g.IntN(2) == 0 {
		replicate(&c, g, c.Train.Clip > 0 || g.IntN(2) == 0)
	}
	p, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, 1)
	if err != nil {
		return c, 0, false
	}
	every = p.StopUnit() * (1 + g.IntN(3))
	c.Train.Steps = every*(2+g.IntN(2)) + g.IntN(every+1)/p.StopUnit()*p.StopUnit()
	c.Keep.Steps = c.Train.Steps
	if _, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, c.Train.Steps); err != nil || every > 48 {
		return c, 0, false
	}
	return c, every, true
}

// saves returns the config, changed so that stages save by themselves in dir.
func (c Config) saves(dir string, every int) Config {
	c.Checkpoint = Checkpointing{Dir: dir, Every: every, ByStage: true}
	return c
}

// drained runs this many steps, drains, saves, and resumes to the end without another drain.
func drained(t *testing.T, c Config, steps int) (there, end *Result) {
	t.Helper()
	first := c
	first.Train.Steps, first.Checkpoint = steps, Checkpointing{Dir: t.TempDir()}
	there = train(t, first)
	if steps == c.Train.Steps {
		return there, there
	}
	second := c
	second.Resume.At, second.Checkpoint = first.Checkpoint.Dir, Checkpointing{}
	return there, train(t, second)
}

// A save without a drain does not change the bits of the run. A run that resumes from it ends with the same bits as one
// that drained there. The test tries every stream except asp, with and without replicas, in one process and in several.
func TestStagesSaveWithoutADrain(t *testing.T) {
	ran := map[schedule.Policy]int{}
	var mu sync.Mutex
	eachSeed(t, cases(60, 240), func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 71))
		policy := streamPolicies[seed%uint64(len(streamPolicies))]
		c, every, ok := epochConfig(t, g, policy)
		if !ok {
			return
		}
		mu.Lock()
		ran[policy]++
		mu.Unlock()
		about := fmt.Sprintf("seed %d, %s, every %d of %d steps, %+v", seed, policy, every, c.Train.Steps, *c.Plan)
		never := train(t, c)
		saving := c.saves(t.TempDir(), every)
		var order []int
		saving.Hooks.OnCheckpoint = func(_ string, steps int) { order = append(order, steps) }
		var got *Result
		if workers := len(c.Plan.Devices()); workers > 1 && g.IntN(2) == 0 {
			got = in(g, workers, 2).train(t.Context(), t, saving).whole(t)
		} else {
			got = train(t, saving)
		}
		if err := sameWeights(never.Weights, got.Weights); err != nil {
			t.Fatalf("%s: a run that saved: %v", about, err)
		}
		if a, b := losses(never.Timeline), losses(got.Timeline); !slices.Equal(a, b) {
			t.Fatalf("%s: losses %v; without saving %v", about, b, a)
		}
		var want []int
		for at := every; at <= c.Train.Steps; at += every {
			want = append(want, at)
		}
		if want[len(want)-1] != c.Train.Steps {
			want = append(want, c.Train.Steps)
		}
		if !slices.Equal(order, want) {
			t.Fatalf("%s: saved behind %v, wanted %v", about, order, want)
		}
		at := every * (1 + g.IntN(c.Train.Steps/every))
		if at == c.Train.Steps {
			at = every
		}
		there, end := drained(t, c, at)
		again := c.saves(t.TempDir(), every)
		again.Resume.At = filepath.Join(saving.Checkpoint.Dir, checkpoint.NameOf(at))
		if from, err := checkpoint.Open(again.Resume.At); err != nil || from.Manifest.Loss != there.Loss {
			t.Fatalf("%s: checkpoint %d: %v, loss not %v", about, at, err, there.Loss)
		} else if err := from.Close(); err != nil {
			t.Fatal(err)
		}
		resumed := train(t, again)
		if err := sameWeights(end.Weights, resumed.Weights); err != nil {
			t.Fatalf("%s: resumed behind %d: %v", about, at, err)
		}
		if a, b := losses(end.Timeline), losses(resumed.Timeline); !slices.Equal(a, b) {
			t.Fatalf("%s: losses behind %d: %v; of a run that drained there %v", about, at, b, a)
		}
	})
	for _, policy := range streamPolicies {
		if ran[policy] < 8 {
			t.Errorf("%s: %d cases", policy, ran[policy])
		}
	}
}

// On delayed devices too, a save without a drain does not change the weights. It does not change those of a run that
// resumes from it either.
func TestLateDevicesSaveWithoutADrain(t *testing.T) {
	for seed := range cases(12, 40) {
		g := rand.New(rand.NewPCG(seed, 72))
		c, every, ok := epochConfig(t, g, streamPolicies[seed%uint64(len(streamPolicies))])
		if !ok {
			continue
		}
		_, end := drained(t, c, every)
		saving := c.saves(t.TempDir(), every)
		saving.Engine, saving.Machine.Ahead = ref.Lazy(lateness(seed)), g.IntN(3)
		never := train(t, c)
		if got := train(t, saving); sameWeights(never.Weights, got.Weights) != nil {
			t.Fatalf("seed %d: %v", seed, sameWeights(never.Weights, got.Weights))
		}
		again := c
		again.Resume.At = filepath.Join(saving.Checkpoint.Dir, checkpoint.NameOf(every))
		again.Engine, again.Machine.Ahead = saving.Engine, saving.Machine.Ahead
		if got := train(t, again); sameWeights(end.Weights, got.Weights) != nil {
			t.Fatalf("seed %d, resumed behind %d: %v", seed, every, sameWeights(end.Weights, got.Weights))
		}
	}
}

// A kill at any point between the saves of stages leaves the checkpoint of the last epoch that all stages have saved.
// The test copies the disk whenever a stage reads a tensor for a save, and resumes from the copy.
func TestAKillBetweenStagesLeavesTheLastWholeEpoch(t *testing.T) {
	g := rand.New(rand.NewPCG(5, 73))
	var c Config
	every := 0
	for ok := false; !ok || len(c.Plan.Stages) < 3; {
		c, every, ok = epochConfig(t, g, schedule.Stash)
	}
	c.Train.Steps = 3 * every
	ends := map[int]*Result{}
	for at := every; at <= c.Train.Steps; at += every {
		_, ends[at] = drained(t, c, at)
	}
	saving := c.saves(filepath.Join(t.TempDir(), "checkpoints"), every)
	states := map[string]string{} // copies of the folder, by the files that they have
	var mu sync.Mutex
	saving.Engine = savingEngine{c.Engine, saving.Checkpoint.Dir, func(int, []string) error {
		mu.Lock()
		defer mu.Unlock()
		to := filepath.Join(t.TempDir(), "checkpoints")
		for range 100 {
			if os.CopyFS(to, os.DirFS(saving.Checkpoint.Dir)) == nil {
				break
			}
			if err := os.RemoveAll(to); err != nil { // the copy failed: a draft may have become a checkpoint
				return err
			}
		}
		states[strings.Join(names(t, to), " ")] = to
		return nil
	}}
	train(t, saving)
	tried := map[int]int{}
	for state, dir := range states {
		newest := 0
		for at := every; at <= c.Train.Steps; at += every {
			if strings.Contains(state, checkpoint.NameOf(at)+"/manifest.json") {
				newest = at
			}
		}
		tried[newest]++
		if newest == 0 || newest == c.Train.Steps {
			continue
		}
		again := c.saves(dir, every)
		again.Resume.At = dir
		got := train(t, again)
		if got.Timeline.Steps[0].Step != newest {
			t.Fatalf("of %s step %d is gone on from, not %d", state, got.Timeline.Steps[0].Step, newest)
		}
		if err := sameWeights(ends[newest].Weights, got.Weights); err != nil {
			t.Fatalf("of %s: %v", state, err)
		}
		if left := names(t, dir); strings.Contains(strings.Join(left, " "), ".partial") {
			t.Fatalf("drafts are left of %s: %v", state, left)
		}
	}
	// How often each epoch is the newest one in a copy depends on how soon the leader seals what stages have written.
	if behind := tried[every] + tried[2*every]; tried[0] < 1 || behind < 1 || tried[0]+behind < 4 {
		t.Errorf("states by the newest whole epoch: %v; wanted some in front of the first, and behind it", tried)
	}
}

// names returns all files of a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A run that is told to stop ends like a shorter one and saves its last state. It keeps the newest checkpoints and no
// draft. This holds even if an epoch has fewer minibatches than the pipeline holds.
func TestARunWhoseStagesSaveStops(t *testing.T) {
	for seed := range cases(12, 40) {
		g := rand.New(rand.NewPCG(seed, 74))
		c, every, ok := epochConfig(t, g, streamPolicies[seed%uint64(len(streamPolicies))])
		if !ok {
			continue
		}
		c = c.saves(t.TempDir(), every)
		c.Checkpoint.Keep, c.Train.Steps = 2, 6*every
		at := g.IntN(5 * every)
		stopsAsAShorterRun(t, seed, c, at)
		left, err := os.ReadDir(c.Checkpoint.Dir)
		if err != nil || len(left) > 2 || len(left) == 0 {
			t.Fatalf("seed %d: %v, %v; 2 are kept", seed, left, err)
		}
		for _, l := range left {
			if strings.Contains(l.Name(), "partial") {
				t.Fatalf("seed %d: %s is left", seed, l.Name())
			}
		}
	}
}

// A stage that cannot write ends the run, which leaves the earlier checkpoints and no draft.
func TestAStageThatCannotSaveEndsTheRun(t *testing.T) {
	g := rand.New(rand.NewPCG(6, 75))
	var c Config
	every := 0
	for ok := false; !ok || len(c.Plan.Stages) < 2; {
		c, every, ok = epochConfig(t, g, schedule.Stash)
	}
	c = c.saves(t.TempDir(), every)
	c.Train.Steps = 3 * every
	why := errors.New("no more room")
	c.Engine = savingEngine{c.Engine, c.Checkpoint.Dir, func(_ int, drafts []string) error {
		if slices.ContainsFunc(drafts, func(d string) bool { return strings.Contains(d, checkpoint.NameOf(2*every)) }) {
			return why
		}
		return nil
	}}
	res, err := Train(context.Background(), c)
	if !errors.Is(err, why) || res.Leaked != 0 {
		t.Error(err, res.Leaked)
	}
	for _, name := range names(t, c.Checkpoint.Dir) {
		if !strings.HasPrefix(name, checkpoint.NameOf(every)+"/") {
			t.Errorf("%s is left", name)
		}
	}
}

// ByStage is refused with a reason if its checkpoint would differ from that of a drain, or if it would make no
// difference.
func TestWhereStagesDoNotSaveThemselves(t *testing.T) {
	stream := func(c *Config) { c.Plan.Schedule, c.Plan.Weights, c.Plan.MicroBatches = "1f1b-rr", "stash", 1 }
	for want, spoil := range map[string]func(c *Config){
		"with weights sync nothing is in flight behind a step": func(*Config) {},
		"say behind how many steps (save-every)":               func(c *Config) { stream(c); c.Checkpoint.Every = 0 },
		"every 3 steps; stages update for 2 at once: give a multiple": func(c *Config) {
			stream(c)
			c.Plan.Stages[0].Devices, c.Plan.Stages[1].Devices = []int{0, 1}, []int{2}
		},
		"pipelines side by side are held together by a reference": func(c *Config) {
			c.Plan.Schedule, c.Plan.Weights, c.Plan.Elastic = "elastic", "elastic", plan.NewElastic(2)
		},
		"has running statistics": func(c *Config) {
			m := build(t, "convnet", map[string]any{"image": []int{1, 4, 4}, "widths": []int{2}, "dense": []int{3},
				"batch_norm": true, "classes": 3})
			c.Model, c.Plan = m, planOf(m, evenCuts(len(m.Layers), 2), 2, 1, "1f1b-rr")
			stream(c)
		},
	} {
		c := small(t, 2, 9)
		c.Train.Clip = 0
		c = c.saves(t.TempDir(), 3)
		spoil(&c)
		if _, err := Train(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; wanted %q", err, want)
		}
	}
}
