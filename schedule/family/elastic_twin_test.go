package family

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

// averaging is elastic averaging on plain numbers: one stage of one weight for each pipeline.
type averaging struct {
	e     plan.Elastic
	x     []float64
	z     float64
	queue []float64
}

// local updates pipeline p with step u of its optimizer.
func (a *averaging) local(p int, u float64) {
	if a.e.Order == plan.UpdateFirst {
		a.x[p] = (1-a.e.Alpha)*(a.x[p]+u) + a.e.Alpha*a.z
	} else {
		a.x[p] = (1-a.e.Alpha)*a.x[p] + a.e.Alpha*a.z + u
	}
	a.queue[p] = u
}

// reference applies the queue of steps to the reference.
func (a *averaging) reference() {
	sum := 0.0
	for _, u := range a.queue {
		sum += u
	}
	a.z += sum / float64(len(a.queue))
}

// apart returns the difference between the reference and the average of the pipelines.
func (a *averaging) apart() float64 {
	sum := 0.0
	for _, x := range a.x {
		sum += x
	}
	return math.Abs(sum/float64(len(a.x)) - a.z)
}

// sequential computes AvgPipe's equations without a Program, iteration by iteration and pipeline by pipeline. `step`
// returns the optimizer's step u of a pipeline at weights x.
func sequential(e plan.Elastic, start float64, iterations int, step func(p, t int, x float64) float64,
	each func(*averaging)) *averaging {
	a := newAveraging(e, start)
	for t := range iterations {
		for p := range e.Pipelines {
			a.local(p, step(p, t, a.x[p]))
		}
		a.reference()
		each(a)
	}
	return a
}

func newAveraging(e plan.Elastic, start float64) *averaging {
	a := &averaging{e: e, z: start, x: make([]float64, e.Pipelines), queue: make([]float64, e.Pipelines)}
	for p := range a.x {
		a.x[p] = start
	}
	return a
}

// TestElasticProgramsAreTheEquations: executing the updates of every worker's list in order gives the same bits as
// the sequential computation.
func TestElasticProgramsAreTheEquations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := plan.Elastic{Pipelines: rapid.IntRange(2, 5).Draw(t, "pipelines"),
			Alpha: rapid.Float64Range(0, 1).Draw(t, "alpha"), Order: plan.DiluteFirst}
		stages, m, iterations := rapid.IntRange(1, 4).Draw(t, "stages"),
			rapid.IntRange(1, 5).Draw(t, "micro-batches"), rapid.IntRange(1, 25).Draw(t, "iterations")
		p, err := Generate("elastic", schedule.Settings{Placement: schedule.Replicated(stages, 1), MicroBatches: m,
			Repeat: iterations, Elastic: &e})
		if err != nil {
			t.Fatal(err)
		}
		steps := rapid.SliceOfN(rapid.Float64Range(-1, 1), e.Pipelines*iterations, e.Pipelines*iterations).Draw(t,
			"steps")
		step := func(pl, t int, x float64) float64 { return steps[t*e.Pipelines+pl] - x/8 }
		want := sequential(e, 0.5, iterations, step, func(*averaging) {})
		for w := range p.Workers {
			got := newAveraging(e, 0.5)
			p.Walk(w, func(in schedule.Instruction) bool {
				switch {
				case in.Kind != schedule.U:
				case p.IsReference(int(in.Pipeline)):
					got.reference()
				default:
					got.local(int(in.Pipeline), step(int(in.Pipeline), int(in.Micro), got.x[in.Pipeline]))
				}
				return true
			})
			if got.z != want.z {
				t.Fatalf("worker %d: the reference is %v, want %v", w, got.z, want.z)
			}
			for pl := range got.x {
				if got.x[pl] != want.x[pl] {
					t.Fatalf("worker %d: pipeline %d has %v, want %v", w, pl, got.x[pl], want.x[pl])
				}
			}
		}
	})
}

// TestTheReferenceIsTheAverage: except for rounding, the reference is the average of the pipelines, for any steps. In
// the paper's printed order the reference and the average differ by alpha times the mean step after one iteration.
func TestTheReferenceIsTheAverage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := plan.Elastic{Pipelines: rapid.IntRange(1, 6).Draw(t, "pipelines"),
			Alpha: rapid.Float64Range(0.05, 1).Draw(t, "alpha"), Order: plan.DiluteFirst}
		step := func(p, t int, x float64) float64 { return 1 + math.Sin(float64(7*p+t)) - x/4 }
		sequential(e, 1, 300, step, func(a *averaging) {
			if a.apart() > 1e-12*(1+math.Abs(a.z)) {
				t.Fatalf("the reference is %v from the average of %v", a.apart(), a.x)
			}
		})
		e.Order = plan.UpdateFirst
		mean := 0.0
		for p := range e.Pipelines {
			mean += step(p, 0, 1) / float64(e.Pipelines)
		}
		first := sequential(e, 1, 1, step, func(*averaging) {})
		if want := e.Alpha * mean; math.Abs(first.apart()-want) > 1e-12 {
			t.Fatalf("in the printed order the average is %v behind after one iteration, want %v", first.apart(), want)
		}
	})
}

// TestThePrintedOrderLearnsNothing: here there is one pipeline, and alpha is 1. In the paper's printed order the
// weights keep their initial values as long as the reference does not change. In the other order the weights are those
// of plain training, if the reference applies every update.
func TestThePrintedOrderLearnsNothing(t *testing.T) {
	down := func(_, _ int, x float64) float64 { return -0.5 * x }
	e := *plan.NewElastic(1)
	if got := sequential(e, 1, 3, down, func(*averaging) {}); got.x[0] != 0.125 {
		t.Errorf("plain training comes to %v, want 1/8", got.x[0])
	}
	e.Order = plan.UpdateFirst
	a := newAveraging(e, 1)
	for range 3 { // reference is never called, so each update pulls x all the way back to z
		a.local(0, down(0, 0, a.x[0]))
	}
	if a.x[0] != 1 {
		t.Errorf("the printed order comes to %v, want the reference, 1", a.x[0])
	}
}
