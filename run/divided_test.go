package run

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/stage/optim"
)

// nearWeights refuses weights of a run that are farther than tolerance, of the largest number of each parameter, from
// another's.
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

// border is where a stage begins: in front of a layer, of which the stages in front have a part.
type border struct {
	layer int
	part  float64
}

// divide has the stages of a plan, in a model of so many layers, begin at these borders, the first one's left out.
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

// divideSome moves borders between stages into layers that can be divided, to any feature, and says how many.
func divideSome(g *rand.Rand, m *model.Model, p *plan.Plan) (n int) {
	var at []border
	last := border{}
	for i := range p.Stages[1:] {
		b := border{layer: p.Stages[i+1].FirstLayer}
		for _, l := range g.Perm(2) {
			inside := border{layer: b.layer - l}
			f, can := model.FeaturesOf(&m.Layers[inside.layer])
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

// A layer that stages divide trains as the whole one does: under every synchronous order, by any parts, at both ends of
// a stage too, with every optimizer that steps numbers one by one, halves of backwards, recompute, clipping,
// validation behind the norm and evaluations, to the literal twin's numbers.
func TestDividedLayersTrainAsWholeOnes(t *testing.T) {
	e := testEngine(t)
	for _, f := range family.All() {
		if !f.AdmitsPolicy(schedule.Sync) || f.Chunks == 0 && slices.Contains([]string{"dp", "single"}, f.Name) {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			ran, both := 0, 0
			for seed := uint64(0); ran < 12 && seed < 200; seed++ {
				g := rand.New(rand.NewPCG(seed, 61))
				c := denseChain()
				m := c.model(t)
				config := basic(t, e, m, randomPlan(g, m), 3, 6)
				config.Optimizer, config.Rate = optimizers[ran%len(optimizers)], rates[g.IntN(len(rates))]
				config.Clip, config.EvalEvery = []float64{0, 0.3, 1}[g.IntN(3)], []int{0, 4}[g.IntN(2)]
				if config.Optimizer.Kind == optim.LARS {
					config.Optimizer = optim.Settings{Kind: optim.SGD, Momentum: 0.5}
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
				config.Plan.PostValidate = config.Clip > 0 && g.IntN(2) == 0 && !f.AdmitsPolicy(schedule.Elastic)
				if _, err := programs.Build(config.Plan, m.TiedLayers(), config.Clip > 0, 1); err != nil {
					continue
				}
				if err := asAlone(t, c, config, tolerance(e)); err != nil {
					t.Fatalf("seed %d: %v\n%+v\n%+v clip %v", seed, err, *config.Plan, config.Optimizer, config.Clip)
				}
				for i := range config.Plan.Stages[1:] {
					if config.Plan.Shares(i) && config.Plan.Shares(i+1) {
						both++
					}
				}
				ran++
			}
			if ran < 12 || both == 0 {
				t.Errorf("%d cases, %d stages with parts at both ends", ran, both)
			}
		})
	}
}
