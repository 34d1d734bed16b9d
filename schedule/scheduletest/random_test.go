package scheduletest

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/lower"
	"pgregory.net/rapid"
)

// TestRandomProgramsVary: random Programs pass Check once lowered, and together have all features that the options
// allow.
func TestRandomProgramsVary(t *testing.T) {
	seen, kinds := map[string]int{}, []string{"sync", "latest", "stash", "vertical", "2bw", "split replicas",
		"round_robin replicas", "chunks", "halves", "descending"}
	lacks := func(what string) bool { return seen[what] == 0 }
	vary := func(t *rapid.T) {
		p := Random(Drawn(t), Everything())
		q, err := lower.Lower(p, lower.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := check.Check(q); err != nil {
			t.Fatalf("%v\n%s", err, p.Text())
		}
		seen[string(p.Weights)]++
		for _, on := range p.Placement[0] {
			if len(on) > 1 {
				seen[string(p.Replication)+" replicas"]++
				break
			}
		}
		for w, list := range p.Body {
			if len(p.StagesOf(w)) > 1 {
				seen["chunks"]++
			}
			for i, in := range list {
				if in.Kind == schedule.W {
					seen["halves"]++
				}
				if i > 0 && list[i-1].Kind == in.Kind && list[i-1].Stage == in.Stage && list[i-1].Micro > in.Micro {
					seen["descending"]++
				}
			}
		}
	}
	// The rarest feature is in one of twenty Programs, so a hundred Programs miss it about once in 170 times.
	for range 10 {
		if rapid.Check(t, vary); !slices.ContainsFunc(kinds, lacks) {
			break
		}
	}
	for _, what := range kinds {
		if lacks(what) {
			t.Errorf("no random Program had %s: %v", what, seen)
		}
	}
	t.Log(seen)
}

// TestAscending: with the option Ascending, no stage runs a micro-batch before an earlier one.
func TestAscending(t *testing.T) {
	o := Everything()
	o.Ascending = true
	rapid.Check(t, func(t *rapid.T) {
		p := Random(Drawn(t), o)
		for _, list := range p.Body {
			last := map[schedule.Instruction]int32{}
			for _, in := range list {
				of := in
				of.Micro = 0
				if before, ok := last[of]; ok && before > in.Micro {
					t.Fatalf("%v stands behind micro-batch %d\n%s", in, before, p.Text())
				}
				last[of] = in.Micro
			}
		}
	})
}

// TestRefusalsReachEverybody lowers random orders with chunks and replicas, with updates that are validated later. If
// an update is refused, a worker that knows this sends no more messages of later minibatches. Every worker must
// validate early enough that it does not wait for such a message. In some orders a validation comes even before the
// receive of a forward.
func TestRefusalsReachEverybody(t *testing.T) {
	sooner := 0
	rapid.Check(t, func(t *rapid.T) {
		o := Everything()
		o.Policies = nil
		p := Random(Drawn(t), o)
		q, err := lower.Lower(p, lower.Options{Clip: true, PostValidate: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := check.Check(q); err != nil {
			t.Fatalf("%v\n%s", err, q.Text())
		}
		for _, list := range q.Body {
			at := slices.IndexFunc(list, func(in schedule.Instruction) bool { return in.Kind == schedule.PV })
			if at >= 0 && at+1 < len(list) && list[at+1].Kind == schedule.RF {
				sooner++
			}
		}
	})
	if t.Log(sooner); sooner == 0 {
		t.Error("none did")
	}
}
