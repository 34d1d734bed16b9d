package schedule_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"pgregory.net/rapid"
)

func stream(t testing.TB, placement [][]int, m, minibatches int, w schedule.Policy) *schedule.Program {
	t.Helper()
	p, err := family.Generate("1f1b-rr", schedule.Settings{Placement: placement, MicroBatches: m, Repeat: minibatches,
		Weights: w})
	if err != nil {
		t.Fatal(err)
	}
	p, err = lower.Lower(p, lower.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestStaleness checks PipeDream §3.3 on a straight pipeline of n stages, counted from 1. w_i(t) are stage i's weights
// after t updates, f is the loss, and lr the learning rate. With stashing, w(t+1) = w(t) - lr grad f(w_1(t-n+1),
// w_2(t-n+2), ..., w_n(t)). With vertical sync every stage uses w(t-n+1). With 2BW, w(t+1) = w(t) - lr grad f(w(t-1)).
func TestStaleness(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 8} {
		for _, policy := range []schedule.Policy{schedule.Stash, schedule.Vertical, schedule.Latest,
			schedule.DoubleBuffered} {
			m := 1
			if policy == schedule.DoubleBuffered {
				m = n
			}
			p := stream(t, schedule.Replicated(n, 1), m, 5*n+3, policy)
			for w := range n {
				for _, u := range p.Uses(w) {
					in, v := u.Instruction, u.Version
					at, i := int(in.Micro)/m, w+1
					want := map[schedule.Policy]int{schedule.Stash: at - n + i, schedule.Vertical: at - n + 1,
						schedule.Latest: at - n + i, schedule.DoubleBuffered: at - 1}[policy]
					if policy == schedule.Latest && in.Kind == schedule.B {
						want = at
					}
					if in.Kind == schedule.U {
						want = at + 1
						if m > 1 {
							want = int(in.Micro) + 1
						}
					}
					if in.Kind != schedule.U {
						want = max(0, want)
					}
					if v != want {
						t.Fatalf("%s, n=%d: %v of stage %d uses version %d, want %d", policy, n, in, i, v, want)
					}
				}
			}
		}
	}
}

// TestVersionsHeld: under stashing, stage i of n, counted from 1, holds n-i+1 versions, one for each minibatch in
// flight (PipeDream §3.3). 2BW holds two versions, and latest holds one. Vertical sync holds the versions that
// minibatches still to come may use, at most n.
func TestVersionsHeld(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 8} {
		for _, policy := range []schedule.Policy{schedule.Stash, schedule.Vertical, schedule.Latest,
			schedule.DoubleBuffered} {
			m := 1
			if policy == schedule.DoubleBuffered {
				m = n
			}
			rep, err := check.Check(stream(t, schedule.Replicated(n, 1), m, 5*n+3, policy))
			if err != nil {
				t.Fatal(err)
			}
			for w, got := range rep.Versions {
				want := map[schedule.Policy]int{schedule.Stash: n - w, schedule.Vertical: n, schedule.Latest: 1,
					schedule.DoubleBuffered: 2}[policy]
				if got != want && (policy != schedule.Vertical || got > n) {
					t.Errorf("%s, n=%d: stage %d holds %d versions, want %d", policy, n, w+1, got, want)
				}
				if rep.PeakActivations[w] != n-w {
					t.Errorf("%s, n=%d: stage %d holds %d minibatches, want %d", policy, n, w+1,
						rep.PeakActivations[w], n-w)
				}
			}
		}
	}
}

func TestNOAM(t *testing.T) {
	for _, c := range []struct {
		replicas, want []int
	}{
		{[]int{1, 1, 1, 1}, []int{4, 3, 2, 1}},
		{[]int{2, 1}, []int{2, 1}},  // PipeDream Fig. 8: NOAM ceil(3/2)
		{[]int{15, 1}, []int{2, 1}}, // VGG-16 in Table 1
		{[]int{9, 5, 1, 1}, []int{2, 2, 2, 1}},
		{[]int{1, 3}, []int{4, 1}},
	} {
		if got := family.NOAM(inTurn(c.replicas)); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.replicas, got, c.want)
		}
	}
}

func inTurn(replicas []int) (placement [][]int) {
	next := 0
	for _, r := range replicas {
		var on []int
		for range r {
			on = append(on, next)
			next++
		}
		placement = append(placement, on)
	}
	return placement
}

// TestStreamsOfAnyReplicas: PipeDream's start-up works for random numbers of replicas. A stage of r replicas updates
// once for r minibatches, and at the end once for the remaining minibatches.
func TestStreamsOfAnyReplicas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := rapid.SliceOfN(rapid.IntRange(1, 5), 1, 4).Draw(t, "replicas")
		total := rapid.IntRange(1, 90).Draw(t, "minibatches")
		policy := rapid.SampledFrom([]schedule.Policy{schedule.Stash, schedule.Vertical, schedule.Latest}).Draw(t,
			"policy")
		p, err := family.Generate("1f1b-rr", schedule.Settings{Placement: inTurn(replicas), MicroBatches: 1,
			Repeat: total, Weights: policy})
		if err != nil {
			t.Fatal(err)
		}
		q, err := lower.Lower(p, lower.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if rep, err := check.Check(q); err != nil {
			t.Fatalf("%v\n%v\n%s", err, rep, q.Text())
		}
		for s, on := range q.Placement[0] {
			for r, w := range on {
				var want schedule.List
				var mine []int
				for m := r; m < total; m += len(on) {
					mine = append(mine, m)
				}
				at := schedule.Instruction{Stage: int32(s), Replica: int16(r)}
				k := min(family.NOAM(q.Placement[0])[s], len(mine))
				add := func(kind schedule.Kind, m int) {
					in := at.As(kind)
					in.Micro = int32(m)
					want = append(want, in)
				}
				for _, m := range mine[:k] {
					add(schedule.F, m)
				}
				for j := range mine {
					add(schedule.B, mine[j])
					if j+k < len(mine) {
						add(schedule.F, mine[j+k])
					}
				}
				var got schedule.List
				updates := 0
				q.Walk(w, func(in schedule.Instruction) bool {
					switch in.Kind {
					case schedule.F, schedule.B:
						got = append(got, in)
					case schedule.U:
						updates++
					}
					return true
				})
				if !slices.Equal(got, want) {
					t.Fatalf("stage %d, replica %d:\n%v\nwant\n%v", s, r, got, want)
				}
				if n := (total + len(on) - 1) / len(on); updates != n {
					t.Fatalf("stage %d of %d replicas updates %d times in %d minibatches, want %d", s, len(on),
						updates, total, n)
				}
			}
		}
	})
}

func TestPoliciesRefused(t *testing.T) {
	for _, c := range []struct {
		family string
		s      schedule.Settings
		want   string
	}{
		{"1f1b-rr", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 1, Weights: schedule.Sync},
			`weight policy "sync": this order keeps stash, `},
		{"1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 1, Weights: schedule.Stash},
			`weight policy "stash": this order keeps sync; stash is kept by 1f1b-rr`},
		{"1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 1, Weights: "psychic"},
			`weight policy "psychic": this order keeps sync; there are sync, latest, `},
		{"1f1b-rr", schedule.Settings{Placement: inTurn([]int{2, 1}), MicroBatches: 1, Replication: schedule.Split},
			`replication "split"`},
		{"1f1b-rr", schedule.Settings{Placement: schedule.Replicated(4, 1), MicroBatches: 2, Repeat: 9,
			Weights: schedule.DoubleBuffered}, "do not go together"},
		{"mp", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2, Warmup: []int{2, 1}},
			"holds one micro-batch"},
	} {
		if _, err := family.Generate(c.family, c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want it to say %q", err, c.want)
		}
	}
	p := stream(t, schedule.Replicated(2, 1), 1, 9, schedule.Stash)
	p.Weights = "psychic"
	if _, err := check.Check(p); err == nil || !strings.Contains(err.Error(), `weight policy "psychic"`) {
		t.Errorf("got %v", err)
	}
	p, err := family.Generate("1f1b-rr", schedule.Settings{Placement: inTurn([]int{2, 1}), MicroBatches: 1, Repeat: 6})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lower.Lower(p, lower.Options{Clip: true}); err == nil ||
		!strings.Contains(err.Error(), "no common update") {
		t.Errorf("got %v", err)
	}
}

// TestStreamingPeaks: on stage i of S, FBP-AS holds 2(S-i) micro-batches and 1F1B-AS holds S-i (BaPipe Table I). If
// there are fewer micro-batches, a stage holds all of them.
func TestStreamingPeaks(t *testing.T) {
	for _, S := range []int{1, 2, 3, 4, 8} {
		for _, M := range []int{1, S, 2 * S, 4 * S, 2*S + 1} {
			for name, factor := range map[string]int{"1f1b-as": 1, "fbp-as": 2} {
				p, err := family.Generate(name, schedule.Settings{Placement: schedule.Replicated(S, 1),
					MicroBatches: M, Repeat: 2})
				if err != nil {
					t.Fatal(err)
				}
				rep, err := check.Check(p)
				if err != nil {
					t.Fatal(err)
				}
				for w, got := range rep.PeakActivations {
					if want := min(factor*(S-w), M); got != want {
						t.Errorf("%s S=%d M=%d: stage %d holds %d, want %d", name, S, M, w, got, want)
					}
				}
			}
		}
	}
}

func ExamplePolicy() {
	p, _ := family.Generate("1f1b-rr", schedule.Settings{Placement: [][]int{{0}, {1}, {2}}, MicroBatches: 1, Repeat: 8})
	rep, _ := check.Check(p)
	fmt.Println(p.Weights, rep.Versions)
	// Output: stash [3 2 1]
}

// TestStopUnit: a stream whose replicas take minibatches in turn can stop at a multiple of StopUnit without splitting
// an update. A stage of r replicas updates once for r minibatches. So the unit is a common multiple of all stages' r
// and of the minibatches of the body.
func TestStopUnit(t *testing.T) {
	for _, c := range []struct {
		p    schedule.Program
		want int
	}{
		{schedule.Program{Placement: [][][]int{{{0, 1}, {2, 3, 4}}}, MicroBatches: 1, Period: 1,
			Weights: schedule.Stash, Replication: schedule.RoundRobin}, 6},
		{schedule.Program{Placement: [][][]int{{{0, 1}, {2}}}, MicroBatches: 4, Period: 4, Weights: schedule.Stash,
			Replication: schedule.RoundRobin}, 4},
		{schedule.Program{Placement: [][][]int{{{0, 1}}}, MicroBatches: 3, Period: 3, Weights: schedule.Stash,
			Replication: schedule.RoundRobin}, 6},
		{schedule.Program{Placement: [][][]int{{{0, 1}}}, MicroBatches: 6, Period: 1, Weights: schedule.Stash,
			Replication: schedule.RoundRobin}, 1},
		{schedule.Program{Placement: [][][]int{{{0, 1}}}, MicroBatches: 1, Period: 1, Weights: schedule.Sync,
			Replication: schedule.RoundRobin}, 1},
	} {
		unit := c.p.StopUnit()
		if unit != c.want {
			t.Errorf("%v: %d, want %d", c.p.Placement, unit, c.want)
		}
		for n := unit; n < 40; n += unit {
			for s, on := range c.p.Placement[0] {
				for micro := range int32(80) {
					u := c.p.UpdateOf(0, s, micro)
					mini := c.p.MinibatchOf(schedule.Instruction{Kind: schedule.F, Micro: micro})
					if (mini < n) != (int(u) < n) {
						t.Fatalf("%d replicas: micro-batch %d and its update %d lie on both sides of minibatch %d", len(on),
							micro, u, n)
					}
				}
			}
		}
	}
	var wide schedule.Program // prime numbers of replicas: no valid number of minibatches is a multiple of them all
	wide.Placement, wide.MicroBatches, wide.Period = make([][][]int, 1), 1, 1
	wide.Weights, wide.Replication = schedule.Stash, schedule.RoundRobin
	for _, r := range []int{1021, 1019, 1013, 1009, 997, 991, 983, 977} {
		wide.Placement[0] = append(wide.Placement[0], make([]int, r))
	}
	if unit := wide.StopUnit(); unit != schedule.MaxMicro {
		t.Errorf("replicas that come out even nowhere: %d", unit)
	}
}
