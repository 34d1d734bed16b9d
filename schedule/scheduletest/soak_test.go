package scheduletest

import (
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/lower"
	"pgregory.net/rapid"
)

// lowered draws a random Program and lowers it, with clipping or ties if lowering allows them.
func lowered(t *rapid.T, o Options) *schedule.Program {
	p := Random(Drawn(t), o)
	var options lower.Options
	if rapid.Bool().Draw(t, "clip") {
		options.Clip = true
	}
	if p.Stages > 1 && rapid.Bool().Draw(t, "tied") {
		options.Tied = [][]int{{0, p.Stages - 1}}
	}
	q, err := lower.Lower(p, options)
	if err != nil { // in a stream, stages with unequal numbers of replicas have no common update
		if q, err = lower.Lower(p, lower.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	return q
}

// TestCheckIsTheReplay: Check and the independent replay accept exactly the same random Programs, damaged or not. So
// Check accepts no wrong Program, and refuses no valid order. Damaged Programs that are still valid are counted.
func TestCheckIsTheReplay(t *testing.T) {
	still, all, refused := map[Damage]int{}, map[Damage]int{}, 0
	rapid.Check(t, func(t *rapid.T) {
		p := lowered(t, Everything())
		_, checked := check.Check(p)
		if replayed := Replay(p); (checked == nil) != (replayed == nil) {
			t.Fatalf("Check says %v, the replay %v\n%s", checked, replayed, p.Text())
		}
		if checked != nil {
			if p.Weights == schedule.Sync {
				t.Fatalf("a step that was run is refused: %v\n%s", checked, p.Text())
			}
			refused++ // in a stream, an update would wait for a norm or a tie of a later stage
			return
		}
		bad, how := Corrupt(Drawn(t), p)
		all[how]++
		if check.Validate(bad) != nil {
			return // an instruction is on a worker without its stage, or it is another replica's turn
		}
		_, checked = check.Check(bad)
		replayed := Replay(bad)
		if (checked == nil) != (replayed == nil) {
			t.Fatalf("%s: Check says %v, the replay %v\n%s", how, checked, replayed, bad.Text())
		}
		if replayed == nil {
			still[how]++
			if how == Drop || how == Double || how == Extra {
				t.Fatalf("%s leaves a valid Program\n%s", how, bad.Text())
			}
		}
	})
	t.Logf("damage %v; still valid %v; %d Programs refused before", all, still, refused)
}
