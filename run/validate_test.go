package run

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

// over returns how many norms exceed a limit.
func over(norms []float64, limit float64) int {
	n := 0
	for _, x := range norms {
		if x > limit {
			n++
		}
	}
	return n
}

// Updates that do not wait for the norm lead to the same bits as updates that do. Norms exceed the limit never,
// sometimes or always, in every order that ends in a flush.
func TestValidatedUpdatesEqualThoseThatWait(t *testing.T) {
	e := testEngine(t)
	for _, f := range family.All() {
		if !f.AdmitsPolicy(schedule.Sync) || f.AdmitsPolicy(schedule.Elastic) {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			ran, never, sometimes, always := 0, 0, 0, 0
			enough := int(cases(8, 24))
			for seed := range uint64(60) {
				if ran >= enough && never > 0 && sometimes > 0 && always > 0 {
					break
				}
				g := rand.New(rand.NewPCG(seed, 31))
				c := randomConfig(t, e, g)
				c.Train.Steps = 2 + g.IntN(5)
				c.Keep.Steps = c.Train.Steps
				c.Train.Clip = []float64{1e-4, 0.2, 0.5, 1, 1e6}[g.IntN(5)]
				if !c.placed(f, g) {
					continue
				}
				c.Plan.PostValidate = true
				if _, err := programs.Build(c.Plan, c.Model.TiedLayers(), true, 1); err != nil {
					continue
				}
				ran++
				want, norms := sequentially(t, c, synchronous(c))
				clipped := over(norms, c.Train.Clip)
				got := train(t, c)
				if err := equalCase(c, want, got.Weights); err != nil {
					t.Fatalf("seed %d, %d of %d updates clipped: %v\n%+v", seed, clipped, c.Train.Steps, err, *c.Plan)
				}
				if len(got.Timeline.Steps) != c.Train.Steps || len(got.Timeline.Losses) != c.Train.Steps ||
					got.Steps != c.Train.Steps {
					t.Fatalf("seed %d: %d steps marked, %d losses, %d done of %d", seed, len(got.Timeline.Steps),
						len(got.Timeline.Losses), got.Steps, c.Train.Steps)
				}
				switch clipped {
				case 0:
					never++
					checkOrder(t, c, got)
				case c.Train.Steps:
					always++
				default:
					sometimes++
				}
			}
			t.Logf("%d cases: norms over the limit never in %d, sometimes in %d, always in %d", ran, never, sometimes, always)
			if ran < 8 || never == 0 || sometimes == 0 || always == 0 {
				t.Errorf("%d of 60 cases suited the family: norms over the limit never in %d, sometimes in %d, always in %d", ran,
					never, sometimes, always)
			}
		})
	}
}

// On torch, batch norm statistics and optimizer states are taken back together with the weights, also in models with
// dropout.
func TestTorchValidatedUpdates(t *testing.T) {
	e := torchEngine(t)
	for _, net := range smallModels {
		sometimes, median := 0, 0.0
		for _, order := range []string{"zb-h2", "1f1b", "zb-v", "dp"} {
			for _, clip := range []float64{1e6, 0, 1e-3} { // 0 means the median norm
				m := build(t, net.name, net.settings)
				c := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), 4), 3, 8, "1f1b"), net.classes, 5)
				if f, err := family.Lookup(order); err != nil || !c.placed(f, rand.New(rand.NewPCG(1, 34))) {
					t.Fatal(order, err)
				}
				c.Train.Optimizer = optim.Settings{Kind: optim.AdamW, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.1}
				if clip == 0 {
					clip = median
				}
				c.Train.Rate.Base, c.Train.Clip, c.Plan.PostValidate = 0.05, clip, true
				got := train(t, c)
				want, norms := sequentially(t, c, synchronous(c))
				clipped := over(norms, clip)
				if clip == 1e6 {
					median = slices.Sorted(slices.Values(norms))[len(norms)/2]
				}
				if err := equalCase(c, want, got.Weights); err != nil {
					t.Errorf("%s, %s, limit %v, %d updates clipped: %v", net.name, order, clip, clipped, err)
				}
				if clipped > 0 && clipped < c.Train.Steps {
					sometimes++
				}
			}
		}
		if sometimes < 4 {
			t.Errorf("%s: some norms over the limit in %d cases; 4 were meant", net.name, sometimes)
		}
	}
}

// If a norm is not finite, its update is taken back and not repeated. The run ends with an error that names the stage
// and the step, and every stage has the weights from before that step.
func TestANormThatIsNoNumberTakesTheStepBack(t *testing.T) {
	e := testEngine(t)
	for _, name := range []string{"zb-h2", "1f1b", "zb-v", "interleaved"} {
		for _, at := range []int{0, 1, 3} {
			c := small(t, 4, 6)
			if f, err := family.Lookup(name); err != nil || !c.placed(f, rand.New(rand.NewPCG(1, 35))) {
				t.Fatal(name, err)
			}
			c.Plan.MicroBatches, c.Plan.PostValidate = 8, true
			before := c
			c.Engine = spoiledEngine{Engine: e, step: at, micros: c.Plan.MicroBatches}
			got, err := Train(t.Context(), c)
			says := fmt.Sprintf("the gradient norm of step %d is NaN on stage", trace.StepNumber(at))
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Fatalf("%s: got %v, want %q", name, err, says)
			}
			if got.Steps != at || got.Leaked != 0 {
				t.Errorf("%s: %d steps done and %d handles leaked; the norm of step %d is no number", name, got.Steps, got.Leaked,
					at)
			}
			if at == 0 {
				before.Train.Steps, before.Train.Rate.Base = 1, 0 // weights that have not been changed
				before.Train.Optimizer = optim.Settings{Kind: optim.SGD}
			} else {
				before.Train.Steps = at
			}
			if err := sameWeights(train(t, before).Weights, got.Weights); err != nil {
				t.Errorf("%s: weights after a step %d that was taken back: %v", name, at, err)
			}
		}
	}
}

// spoiledEngine is an engine that sets the first gradient of each backward of one step to NaN.
type spoiledEngine struct {
	engine.Engine
	step, micros int
}

func (s spoiledEngine) Open(worker, threads int) (engine.Device, error) {
	d, err := s.Engine.Open(worker, threads)
	return &spoiledDevice{Device: d, left: s.step * s.micros}, err
}

type spoiledDevice struct {
	engine.Device
	left int // backwards that are not changed
}

func (d *spoiledDevice) Full(dtype engine.DType, shape []int64, value float64) (engine.Tensor, error) {
	if value != 0 {
		if d.left--; d.left < 0 {
			value = math.NaN()
		}
	}
	return d.Device.Full(dtype, shape, value)
}

// If a step is begun again, the work that was done for it before still belongs to the step. That work counts in the
// step's events, duration and busy time, and is kept or dropped with the rest of the step.
func TestWorkDoneForNothingIsPartOfItsStep(t *testing.T) {
	c := small(t, 2, 6)
	c.Train.Clip, c.Plan.PostValidate, c.Keep.Steps = 1e-6, true, 2
	tl := train(t, c).Timeline
	kept := tl.Kept(0)
	if len(kept) != c.Keep.Steps || kept[0].Step != c.Train.Steps-2 || kept[1].Step != c.Train.Steps-1 {
		t.Fatalf("kept %v", kept)
	}
	forwards := map[int]int{}
	for _, e := range tl.Events {
		if !trace.IsBusy(e.Kind) || e.Kind == "EV" {
			continue
		}
		mark, err := tl.Mark(e.Step)
		if err != nil || e.StartS < mark.StartS || e.EndS > mark.EndS {
			t.Errorf("%s of step %d at %v to %v; the step is %v (%v)", e.Instruction, e.Step, e.StartS, e.EndS, mark, err)
		}
		if e.Kind == "F" {
			forwards[e.Step]++
		}
	}
	for _, s := range kept {
		if once := 2 * c.Plan.MicroBatches; forwards[s.Step] < once {
			t.Errorf("step %d has %d forwards; those that count are %d", s.Step, forwards[s.Step], once)
		}
	}
}
