package sim

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
	"pgregory.net/rapid"
)

// randomCosts draws a time for every instruction, and a latency for every pair of workers.
func randomCosts(t *rapid.T, p *schedule.Program) Costs {
	seconds := rapid.Float64Range(0, 3)
	latency := make([]float64, p.Workers*p.Workers)
	for i := range latency {
		latency[i] = seconds.Draw(t, "latency")
	}
	c := Costs{
		Noise:    Noise{DispatchS: rapid.SampledFrom([]float64{0, 0.25}).Draw(t, "dispatch")},
		Transfer: func(from, to int, _ int64) (float64, float64) { return latency[from*p.Workers+to], 0 },
	}
	drawBesides(t, &c)
	// All-reduces of several stages on one worker wait for each other. A longest path cannot express that.
	queues := false
	for w := range p.Workers {
		several := 0
		for _, h := range p.StagesOf(w) {
			if !p.IsReference(h[0]) && len(p.Placement[h[0]][h[1]]) > 1 {
				several++
			}
		}
		queues = queues || several > 1
	}
	for _, on := range p.Placement[0] {
		var replicas []StageCost
		for range on {
			replicas = append(replicas, StageCost{
				ForwardS: seconds.Draw(t, "f"), BackwardS: seconds.Draw(t, "b"), InputS: seconds.Draw(t, "i"),
				WeightS:     seconds.Draw(t, "w"),
				UpdateTimes: profile.UpdateTimes{UpdateS: seconds.Draw(t, "u")}, AllReduceS: seconds.Draw(t, "ar"),
				TiedS: seconds.Draw(t, "tg"), NormS: seconds.Draw(t, "gn"),
			})
		}
		if queues {
			for r := range replicas {
				replicas[r].AllReduceS = 0
			}
		}
		c.Stages = append(c.Stages, replicas)
	}
	return c
}

// TestRandomPrograms: random valid orders run to their end in the order of their lists. Each computation starts exactly
// when the longest path to it ends, and workers hold as many micro-batches as Check counts.
func TestRandomPrograms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := scheduletest.Random(scheduletest.Drawn(t), scheduletest.Everything())
		q, err := lower.Lower(p, lower.Options{Clip: p.Weights == schedule.Sync && rapid.Bool().Draw(t, "clip")})
		if err != nil {
			t.Fatal(err)
		}
		rep, err := check.Check(q)
		if err != nil {
			t.Fatal(err)
		}
		sum := sameAsLongestPath(t, q, randomCosts(t, q))
		if d := cmp.Diff(rep.PeakActivations, sum.PeakActivations); d != "" {
			t.Fatalf("Check counts other peaks than the simulation: %s\n%s", d, q.Text())
		}
	})
}

// TestEveryFamilyIsTheLongestPath does the same as TestRandomPrograms for every family and policy, on costs without any
// symmetry. So results that no closed form covers equal the longest paths too.
func TestEveryFamilyIsTheLongestPath(t *testing.T) {
	all := family.All()
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(all).Draw(t, "family")
		workers := rapid.IntRange(1, 5).Draw(t, "workers")
		s := schedule.Settings{MicroBatches: rapid.IntRange(1, 8).Draw(t, "m"),
			Repeat: rapid.IntRange(1, 3).Draw(t, "repeat")}
		s.Placement = f.Placement(workers, rapid.IntRange(2, 3).Draw(t, "chunks"))
		if len(f.Policies) > 0 {
			s.Weights = rapid.SampledFrom(f.Policies).Draw(t, "weights")
		}
		if len(s.Placement) == workers && f.Place == nil && rapid.Bool().Draw(t, "replicated") {
			s.Placement = schedule.Replicated(workers, 2)
			s.Replication = rapid.SampledFrom([]schedule.Replication{schedule.Split, schedule.RoundRobin}).Draw(t, "replication")
			if f.Replications != nil && !slices.Contains(f.Replications, s.Replication) {
				s.Replication = f.Replications[0]
			}
		}
		p, err := family.Generate(f.Name, s)
		if err != nil {
			return // a shape that the family does not take
		}
		if p, err = lower.Lower(p, lower.Options{}); err != nil {
			t.Fatal(err)
		}
		p.InOrder = p.Served() // a server that serves whichever trainer is ready has no longest path
		sameAsLongestPath(t, p, randomCosts(t, p))
	})
}
