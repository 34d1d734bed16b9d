package scheduletest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// sumsAscend plays each list of a lowered Program in full. `gradients` says whether gradients are summed in ascending
// order of micro-batches. `statistics` says whether statistics see forwards in ascending order. To find out, sumsAscend
// records the micro-batches whose gradients are added to each weight's sum, separately for layers with and without
// split backwards. It also records the forwards that each stage's statistics see.
func sumsAscend(p *schedule.Program) (gradients, statistics bool) {
	gradients, statistics = true, true
	for w := range p.Workers {
		added, seen := map[string][]int32{}, map[string][]int32{}
		p.Walk(w, func(in schedule.Instruction) bool {
			at := fmt.Sprint(in.Pipeline, in.Stage, in.Replica)
			switch in.Kind {
			case schedule.F:
				seen[at] = append(seen[at], in.Micro)
			case schedule.B:
				added[at+" halves"] = append(added[at+" halves"], in.Micro)
				added[at+" whole"] = append(added[at+" whole"], in.Micro)
			case schedule.W:
				added[at+" halves"] = append(added[at+" halves"], in.Micro)
			case schedule.I:
				added[at+" whole"] = append(added[at+" whole"], in.Micro)
			}
			return true
		})
		for _, sum := range added {
			gradients = gradients && slices.IsSorted(sum)
		}
		for _, sum := range seen {
			statistics = statistics && slices.IsSorted(sum)
		}
	}
	return gradients, statistics
}

// TestOutOfOrderOfRandomPrograms: for random orders, OutOfOrder agrees with a play of the sums. The orders have any
// placement, replicas, split backwards and several steps, with and without a flush.
func TestOutOfOrderOfRandomPrograms(t *testing.T) {
	count := map[[2]bool]int{}
	for seed := range uint64(600) {
		g := rand.New(rand.NewPCG(seed, 5))
		o := Everything()
		o.Ascending = g.IntN(3) == 0
		p := Random(g.IntN, o)
		lowered, err := lower.Lower(p, lower.Options{})
		if err != nil {
			t.Fatal(err)
		}
		gradients, statistics := sumsAscend(lowered)
		count[[2]bool{gradients, statistics}]++
		for _, q := range []*schedule.Program{p, lowered} {
			if got := check.OutOfOrder(q, false); (got == nil) != gradients {
				t.Fatalf("seed %d: gradients ascend: %v; %v\n%s", seed, gradients, got, q.Text())
			}
			if got := check.OutOfOrder(q, true); (got == nil) != (gradients && statistics) {
				t.Fatalf("seed %d: all ascend: %v; %v\n%s", seed, gradients && statistics, got, q.Text())
			}
		}
	}
	for _, of := range [][2]bool{{true, true}, {false, true}, {true, false}, {false, false}} {
		if count[of] < 3 {
			t.Errorf("%d programs whose gradients and statistics ascend: %v", count[of], of)
		}
	}
}

// TestFamiliesAscend: under each of its policies, every family's order adds gradients, and runs forwards, in ascending
// order.
func TestFamiliesAscend(t *testing.T) {
	tried := 0
	for _, f := range family.All() {
		policies := f.Policies
		if policies == nil {
			policies = []schedule.Policy{schedule.Sync}
		}
		for _, policy := range policies {
			for _, workers := range []int{1, 2, 3, 4} {
				for _, m := range []int{1, 4, 6, 12} {
					for _, placement := range [][][]int{f.Placement(workers, 2), schedule.Replicated(workers, 2),
						{{0, 1}, {2}}} {
						p, err := family.Generate(f.Name, schedule.Settings{Placement: placement, MicroBatches: m,
							Weights: policy, Repeat: 4})
						if err != nil {
							continue // the family does not take these settings
						}
						tried++
						if wrong := check.OutOfOrder(p, true); wrong != nil {
							t.Errorf("%s %s on %v, %d micro-batches: %v", f.Name, policy, placement, m, wrong)
						}
					}
				}
			}
		}
	}
	if tried < 500 {
		t.Errorf("%d programs tried", tried)
	}
}

// TestGradientsOfLaterUpdates: Check refuses a gradient of a later update that comes before an earlier update, because
// it would be added to the earlier one.
func TestGradientsOfLaterUpdates(t *testing.T) {
	at := func(text string) schedule.List {
		var l schedule.List
		for _, word := range []string{"0F0", "0F1", "0F2", "0F3"} {
			in, _ := schedule.ParseInstruction(word)
			l = append(l, in)
		}
		for _, m := range text {
			l = append(l, schedule.Instruction{Kind: schedule.B, Micro: m - '0'})
		}
		return l
	}
	for order, fine := range map[string]bool{"0123": true, "0213": false, "2013": false, "2301": false} {
		p := &schedule.Program{Name: "x", Workers: 1, Stages: 1, Placement: [][][]int{{{0}}}, MicroBatches: 4,
			Period: 2, Repeat: 1,
			Weights: schedule.Stash, Replication: schedule.RoundRobin, Body: schedule.Part{at(order)}}
		if _, err := check.Check(p); (err == nil) != fine {
			t.Errorf("gradients in the order %s, two to an update: %v", order, err)
		}
	}
}
