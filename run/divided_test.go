package run

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// nearWeights returns an error if weights of two runs differ by more than tolerance, relative to the largest number
// of each parameter.
func nearWeights(got, want map[string]process.Weight, tolerance float64) error {
	if len(got) != len(want) || len(got) == 0 {
		return fmt.Errorf("%d weights and %d", len(got), len(want))
	}
	for name, w := range want {
		x, right := numbersOf(got[name]), numbersOf(w)
		if len(x) != len(right) {
			return fmt.Errorf("%s has %d numbers; want %d", name, len(x), len(right))
		}
		size, off := 0.0, 0.0
		for k := range x {
			size, off = max(size, math.Abs(right[k])), max(off, math.Abs(x[k]-right[k]))
		}
		if !(off <= tolerance*size) {
			return fmt.Errorf("%s is %.2g off, of at most %.2g", name, off, size)
		}
	}
	return nil
}

// border is the beginning of a stage: before a layer, or within a layer after the part that earlier stages have.
type border struct {
	layer int
	part  float64
}

// divide makes the stages of a plan, except the first, begin at these borders. `layers` is the model's number of
// layers.
func divide(p *plan.Plan, layers int, at ...border) *plan.Plan {
	from := border{}
	for i := range p.Stages {
		s := &p.Stages[i]
		s.FirstLayer, s.LastLayer, s.FirstFraction, s.LastFraction = from.layer, layers-1, 0, 0
		if from.part > 0 {
			s.FirstFraction = 1 - from.part
		}
		if i < len(at) {
			switch to := at[i]; {
			case to.part == 0:
				s.LastLayer = to.layer - 1
			case from.part > 0 && to.layer == from.layer:
				s.LastLayer, s.FirstFraction = to.layer, to.part-from.part
			default:
				s.LastLayer, s.LastFraction = to.layer, to.part
			}
			from = at[i]
		}
	}
	return p
}

// divideSome moves borders between stages into a neighbouring layer that can be divided, at a random feature. It
// returns how many borders it has moved.
func divideSome(g *rand.Rand, m *model.Model, p *plan.Plan) (n int) {
	var at []border
	last := border{}
	for i := range p.Stages[1:] {
		b := border{layer: p.Stages[i+1].FirstLayer}
		for _, l := range g.Perm(2) {
			inside := border{layer: b.layer - l}
			f, can := m.Features(inside.layer)
			if !can {
				continue
			}
			inside.part = float64(1+g.IntN(f.Count-1)) / float64(f.Count)
			if inside.layer > last.layer || inside.layer == last.layer && inside.part > last.part {
				b = inside
				n++
				break
			}
		}
		at, last = append(at, b), b
	}
	divide(p, len(m.Layers), at...)
	return n
}

// A layer that is divided between stages trains like a whole one: its weights are near those that the test computes in
// plain arithmetic. The test tries every synchronous order, parts of any size, stages that begin and end with a part,
// and every element-wise optimizer. It also tries split backwards, recompute, clipping, post-validation and
// evaluations.
func TestDividedLayersTrainAsWholeOnes(t *testing.T) {
	e := testEngine(t)
	for _, f := range family.All() {
		if !f.AdmitsPolicy(schedule.Sync) || f.Chunks == 0 && slices.Contains([]string{"dp", "single"}, f.Name) {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			ran, both := 0, 0
			for seed := uint64(0); ran < 7 && seed < 200; seed++ {
				g := rand.New(rand.NewPCG(seed, 61))
				c := denseChain()
				m := c.model(t)
				config := basic(t, e, m, randomPlan(g, m), 3, 6)
				config.Train.Optimizer, config.Train.Rate = optimizers[ran%len(optimizers)], rates[g.IntN(len(rates))]
				config.Train.Clip, config.Train.EvalEvery = []float64{0, 0.3, 1}[g.IntN(3)], []int{0, 4}[g.IntN(2)]
				if config.Train.Optimizer.Kind == optim.LARS {
					config.Train.Optimizer = optim.Settings{Kind: optim.SGD, Momentum: 0.5}
				}
				if !config.placed(f, g) {
					continue
				}
				if divideSome(g, m, config.Plan) == 0 {
					continue
				}
				if f.AdmitsPolicy(schedule.Elastic) {
					config.Plan.Weights, config.Plan.Elastic = string(schedule.Elastic), plan.NewElastic(1)
				}
				config.Plan.PostValidate = config.Train.Clip > 0 && g.IntN(2) == 0 && !f.AdmitsPolicy(schedule.Elastic)
				if _, err := programs.Build(config.Plan, m.TiedLayers(), config.Train.Clip > 0, 1); err != nil {
					continue
				}
				if err := asAlone(t, c, config, tolerance(e)); err != nil {
					t.Fatalf("seed %d: %v\n%+v\n%+v clip %v", seed, err, *config.Plan, config.Train.Optimizer, config.Train.Clip)
				}
				for i := range config.Plan.Stages[1:] {
					if config.Plan.Shares(i) && config.Plan.Shares(i+1) {
						both++
					}
				}
				ran++
			}
			if ran < 7 || both == 0 {
				t.Errorf("%d cases, %d stages with parts at both ends", ran, both)
			}
		})
	}
}

// dividedPlans returns plans of a chain whose stages divide layers.
func dividedPlans(m *model.Model) []*plan.Plan {
	return []*plan.Plan{
		divide(planOf(m, evenCuts(len(m.Layers), 2), 2, 4, "1f1b"), len(m.Layers), border{1, 0.25}),
		divide(planOf(m, evenCuts(len(m.Layers), 3), 2, 4, "zb-h1"), len(m.Layers), border{0, 0.4}, border{2, 0.75}),
		divide(planOf(m, evenCuts(len(m.Layers), 3), 2, 4, "1f1b"), len(m.Layers), border{1, 0.25}, border{1, 0.5}),
	}
}

// Replicas of stages that divide a layer train on the mean over the batch. The stages may have different numbers of
// replicas, which split micro-batches or take them in turn.
func TestReplicasThatDivideLayersTrainOnTheMean(t *testing.T) {
	e, c := testEngine(t), denseChain()
	m := c.model(t)
	for _, how := range []schedule.Replication{schedule.Split, schedule.RoundRobin} {
		for i, replicas := range [][]int{{2, 2}, {1, 2}, {3, 1}, {2, 1, 3}, {2, 2, 2}} {
			config := basic(t, e, m, dividedPlans(m)[len(replicas)-2], 3, 6)
			config.Plan.MicroBatch = 7
			config.Train.Optimizer, config.Train.Clip, config.Plan.Replication = optimizers[i%4], 0.5, string(how)
			on(config.Plan, replicas...)
			if err := asAlone(t, c, config, tolerance(e)); err != nil {
				t.Errorf("%s %v: %v", how, replicas, err)
			}
		}
	}
}

// Several pipelines that divide layers are averaged like pipelines with whole layers. If the reference is beside them,
// each stage's reference consists of the stage's rows. A replay with the recorded references then ends with the same
// bits.
func TestDividedLayersOfPipelinesSideBySide(t *testing.T) {
	e := testEngine(t)
	m := denseChain().model(t)
	config := func(p *plan.Plan) Config {
		c := basic(t, e, m, p, 3, 6)
		c.Train.Optimizer, c.Train.Clip = optimizers[1], 0.5
		c.Plan.Schedule, c.Plan.Weights, c.Plan.Elastic = "elastic", "elastic", plan.NewElastic(3)
		return c
	}
	c := config(dividedPlans(m)[0])
	want := train(t, config(planOf(m, evenCuts(len(m.Layers), 2), 2, 4, "1f1b")))
	if err := nearWeights(train(t, c).Weights, want.Weights, 1e-12); err != nil {
		t.Error(err)
	}
	c.Plan.Elastic.Reference = plan.Beside
	happened := train(t, c)
	c.Train.ReplaySeen = happened.Timeline.Seen
	if err := sameWeights(happened.Weights, train(t, c).Weights); err != nil || len(c.Train.ReplaySeen) == 0 {
		t.Errorf("replayed: %d updates seen, %v", len(c.Train.ReplaySeen), err)
	}
}

// Frozen parameters of a divided layer do not change. Its other parameters train as in the whole layer.
func TestFrozenPartsOfDividedLayers(t *testing.T) {
	e, c := testEngine(t), denseChain()
	for _, patterns := range [][]string{{"n0"}, {"n1.weight"}, {"n0", "n1"}, {"n1.bias", "n2"}} {
		for i := range dividedPlans(c.model(t)) {
			m := c.model(t)
			if err := m.Freeze(patterns); err != nil {
				t.Fatal(err)
			}
			config := basic(t, e, m, dividedPlans(m)[i], 3, 4)
			config.Train.Optimizer = optimizers[3]
			got := train(t, config)
			config.Plan = planOf(m, []int{1}, 2, 4, "1f1b")
			err := nearWeights(got.Weights, train(t, config).Weights, 1e-12)
			if err == nil {
				err = learnsOnly(t, config, got)
			}
			if err != nil {
				t.Errorf("%v frozen, plan %d: %v", patterns, i, err)
			}
		}
	}
}

// A run resumes under another plan: with divided layers, whole layers, or layers divided elsewhere. It keeps the
// optimizer's states and ends like a run with whole layers. A checkpoint is complete, and exports have whole
// parameters.
func TestDividedLayersAreSavedAndResumed(t *testing.T) {
	e, c := testEngine(t), denseChain()
	m := c.model(t)
	plans := dividedPlans(m)
	whole := planOf(m, []int{2}, 2, 4, "afab")
	for i, optimizer := range optimizers {
		if optimizer.Kind == optim.LARS {
			continue
		}
		at := func(p *plan.Plan, steps int) Config {
			config := basic(t, e, m, p, 3, steps)
			config.Train.Optimizer, config.Train.Rate = optimizer, rates[i%len(rates)]
			return config
		}
		want := train(t, at(whole, 12))
		dir := t.TempDir()
		for k, p := range []*plan.Plan{plans[0], whole, plans[2], plans[1]} {
			next := at(p, 3*(k+1))
			next.Checkpoint.Dir = dir
			if k > 0 {
				next.Resume.At = dir
			}
			got := train(t, next)
			if k == 3 {
				if err := nearWeights(got.Weights, want.Weights, 1e-12); err != nil {
					t.Errorf("%+v: %v", optimizer, err)
				}
			}
			all, err := checkpoint.Inspect(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, seen := range all {
				if wrong := seen.Verify(); len(wrong) > 0 {
					t.Errorf("%+v, %s: %v", optimizer, seen.Path, wrong)
				}
			}
		}
		saved, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer saved.Close()
		if rows := slices.DeleteFunc(saved.Names(), func(n string) bool { return !strings.Contains(n, "[") }); len(rows) > 0 {
			t.Errorf("tensors %v are rows of others", rows)
		}
		var file bytes.Buffer
		if err := saved.Export(&file, true); err != nil {
			t.Fatal(err)
		}
		x, err := checkpoint.ReadIndex(bytes.NewReader(file.Bytes()), int64(file.Len()))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range saved.Names() {
			one, err := saved.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			exported, err := x.Read(bytes.NewReader(file.Bytes()), name)
			if err != nil || !bytes.Equal(one.Data, exported.Data) || !slices.Equal(one.Shape, exported.Shape) {
				t.Errorf("%s is exported as %v of %d bytes: %v", name, exported.Shape, len(exported.Data), err)
			}
		}
	}
}

// A run with divided layers ends with the same bits in one process and in several processes over TCP. Delayed devices
// do not change them either.
func TestDividedLayersInProcessesAndOnLateDevices(t *testing.T) {
	m := denseChain().model(t)
	for i, p := range dividedPlans(m) {
		config := basic(t, ref.New(), m, p, 3, 5)
		config.Train.Optimizer, config.Train.Clip = optimizers[1], 0.5
		config.Data.Test, config.Train.EvalEvery, config.Train.EvalRows = noise{model: m, classes: 3, rows: 16, seed: 9}, 2, 9
		want, err := Train(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		of := []int{0, 1, 2}[:len(p.Stages)]
		w := worlds{of: of, carriers: tcp.New, near: true, overTCP: true}
		if err := sameRun(want, w.train(t.Context(), t, config).whole(t)); err != nil {
			t.Errorf("plan %d over TCP: %v", i, err)
		}
		for _, ahead := range []int{0, 2} {
			config.Engine, config.Machine.Ahead = ref.Lazy(ref.Lateness{Seed: uint64(i), OneIn: 3,
				Most: 50 * time.Microsecond}), ahead
			got, err := Train(t.Context(), config)
			if err == nil {
				err = sameRun(want, got)
			}
			if err != nil {
				t.Errorf("plan %d, %d ahead: %v", i, ahead, err)
			}
		}
	}
}

// Stages that hold parts of layers can save without a drain too. Saving changes no bit of the weights. A run that
// resumes from such a checkpoint ends with the same bits as a run that drained there.
func TestDividedLayersSaveWithoutADrain(t *testing.T) {
	ran := 0
	for seed := uint64(0); seed < 120 && ran < 24; seed++ {
		g := rand.New(rand.NewPCG(seed, 73))
		c, every, ok := epochConfig(t, g, streamPolicies[seed%uint64(len(streamPolicies))])
		if !ok || c.Train.Optimizer.Kind == optim.LARS || len(c.Model.TiedLayers()) > 0 || divideSome(g, c.Model,
			c.Plan) == 0 ||
			c.Check() != nil {
			continue
		}
		ran++
		saving := c.saves(t.TempDir(), every)
		if err := sameWeights(train(t, c).Weights, train(t, saving).Weights); err != nil {
			t.Fatalf("seed %d: a run that saved: %v\n%+v", seed, err, *c.Plan)
		}
		_, end := drained(t, c, every)
		again := c.saves(t.TempDir(), every)
		again.Resume.At = filepath.Join(saving.Checkpoint.Dir, checkpoint.NameOf(every))
		if err := sameWeights(end.Weights, train(t, again).Weights); err != nil {
			t.Fatalf("seed %d: resumed behind %d: %v\n%+v", seed, every, err, *c.Plan)
		}
	}
	if ran < 24 {
		t.Errorf("%d cases", ran)
	}
}
