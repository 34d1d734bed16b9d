package lower_test

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// TestAsynchronousDataParallelism: each replica runs the forward of minibatch k+1 before the update of minibatch k.
// When an update replaces weights, no later forward or backward needs the old ones. The Program is the same after it is
// written as text and read.
func TestAsynchronousDataParallelism(t *testing.T) {
	p, err := family.Generate("dp-async", schedule.Settings{Placement: schedule.Replicated(1, 2), MicroBatches: 2,
		Repeat: 5})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	want := `prologue
0: 0F0 0B0 0AR0 0F2
1: 0F1@r1 0B1@r1 0AR0@r1 0F3@r1
body
0: 0B2 0AR1 0U0 0F4
1: 0B3@r1 0AR1@r1 0U0@r1 0F5@r1
epilogue
0: 0B2 0AR1 0U0 0U1
1: 0B3@r1 0AR1@r1 0U0@r1 0U1@r1
`
	if text := p.Text(); !strings.HasSuffix(text, want) {
		t.Errorf("got\n%s\nwant it to end\n%s", text, want)
	}
	back, err := schedule.ParseText(strings.NewReader(p.Text()))
	if err != nil || back.Text() != p.Text() {
		t.Errorf("the text does not come back: %v", err)
	}
	for n := 2; n <= 4; n++ {
		for m := n; m <= 2*n+1; m++ {
			for repeat := 1; repeat <= 9; repeat++ {
				p, err := family.Generate("dp-async", schedule.Settings{Placement: schedule.Replicated(1, n),
					MicroBatches: m, Repeat: repeat})
				if err != nil {
					t.Fatal(err)
				}
				for _, clip := range []bool{false, true} {
					q, err := lower.Lower(p, lower.Options{Clip: clip})
					if err != nil {
						t.Fatal(err)
					}
					rep, err := check.Check(q)
					if err != nil {
						t.Fatalf("n=%d m=%d repeat=%d: %v\n%s", n, m, repeat, err, q.Text())
					}
					if q.Minibatches() != repeat || rep.Versions[0] != 1 {
						t.Fatalf("n=%d m=%d repeat=%d: %d minibatches, versions %v", n, m, repeat, q.Minibatches(),
							rep.Versions)
					}
				}
			}
		}
	}
}

// TestDeferredUpdatesAreChecked: Check refuses three faults of deferred updates. Either the Program has another policy,
// one of the updates is missing, or an update comes after the forward that needs it. Family dp-async refuses several
// stages, one worker, and too few micro-batches.
func TestDeferredUpdatesAreChecked(t *testing.T) {
	for _, c := range []struct {
		why   string
		spoil func(*schedule.Program)
	}{
		{"that is for weights 2bw", func(p *schedule.Program) { p.Weights = schedule.Stash }},
		{"would use weights from before 0U0", func(p *schedule.Program) {
			p.Body[0][2], p.Body[0][3] = p.Body[0][3],
				p.Body[0][2]
		}},
		{"0U4 is there 0 times", func(p *schedule.Program) {
			p.Epilogue[0], p.Epilogue[1] = p.Epilogue[0][:3],
				p.Epilogue[1][:3]
		}},
	} {
		p, err := family.Generate("dp-async", schedule.Settings{Placement: schedule.Replicated(1, 2), MicroBatches: 2,
			Repeat: 5})
		if err == nil {
			p, err = lower.Lower(p, lower.Options{})
		}
		if err != nil {
			t.Fatal(err)
		}
		c.spoil(p)
		if _, err := check.Check(p); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("got %v, want it to say %q", err, c.why)
		}
	}
	for _, s := range []schedule.Settings{{Placement: schedule.Replicated(2, 1), MicroBatches: 4},
		{Placement: schedule.Replicated(1, 1), MicroBatches: 4},
		{Placement: schedule.Replicated(1, 3), MicroBatches: 2}} {
		if p, err := family.Generate("dp-async", s); err == nil {
			t.Errorf("%+v made\n%s", s, p.Text())
		}
	}
}
