package exchange_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/exchange"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"pgregory.net/rapid"
)

// TestLinesOfWhatIsWrong changes files in many ways. If the result cannot run, the error names the file and the reason,
// and where possible the worker and the line.
func TestLinesOfWhatIsWrong(t *testing.T) {
	p, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 3})
	if err != nil {
		t.Fatal(err)
	}
	good := p.Text()
	csv := "0F0,0F1,0B0,0B1\n\n1F0,1B0,1F1,1B1\n"
	for _, c := range []struct{ text, old, new, want string }{
		{good, "1: 1F0 1B0", "1: 1F0 1Q0",
			`line 15: worker 1, instruction 1: schedule: instruction "1Q0": there is no kind "Q"`},
		{good, "1: 1F0 1B0", "1: 1B0", "worker 1, line 15, instruction 0 (1B0): its forward 1F0 must come before it"},
		{good, "1: 1F0 1B0", "1: 1F0 1F0 1B0", "worker 1, line 15, instruction 1 (1F0): it stands in the list twice"},
		{good, "1F0 1B0 1F1", "1F0 1B0 1F1 1B0", "worker 1, line 15, instruction 3 (1B0): it stands in the list twice"},
		{good, " 1B2", "", "worker 1, line 15: 1B2 is missing: the stage runs this micro-batch's forward"},
		{good, " 1F2 1B2", "", "worker 1, line 15: 1F2 is missing: other stages run this micro-batch"},
		{good, "1: 1F0", "1: 0F0 1F0", "worker 1, line 15, instruction 0 (0F0): replica 0 of stage 0 is on worker " +
			"0, not here"},
		{good, "0: 0F0 0F1 0B0", "0: 0F0 0B0 0F1", ""},
		{good, "1: 1F0 1B0 1F1", "1: 1F0 1F1 1B0", ""},
		{strings.Replace(good, "0: 0F0 0F1 0B0", "0: 0F0 0B0 0F1", 1), "1: 1F0 1B0 1F1", "1: 1F0 1F1 1B0",
			"it would block for ever: 0RB0 needs 1SB0; 1RF1 needs 0SF1; and so on round (in x.txt)\n  worker 0 " +
				"cannot start 0RB0: 1SB0 from worker 1 has not arrived (line 14)\n  worker 1 cannot start 1RF1"},
		{good, "place p0/1: 1", "place p0/1:", "line 12: place p0/1: it names nothing"},
		{good, "place p0/1: 1\n", "", "pipeline 0 places 1 of 2 stages"},
		{good, "body\n0: 0F0 0F1", "body # what repeats\n0: 0F0 0F1 0F1",
			"worker 0, line 14, instruction 2 (0F1): it stands"},
		{"\ufeff" + good, "0: 0F0 0F1", "0: 0F0 0F1 0F1", "worker 0, line 14, instruction 2 (0F1): it stands"},
		{"\ufeff" + csv, "0F1,", "0F1,0F1,", "worker 0, line 1, instruction 2 (0F1): it stands in the list twice"},
		{csv, "1F0,1B0,", "\"1F0\", \"1F0\",1B0,", "worker 1, line 3, instruction 1 (1F0): it stands in the list twice"},
		{csv, "1B0,", "", "worker 1, line 3"},
		{csv, "0B1", "0B0", "worker 0, line 1, instruction 3 (0B0): it stands in the list twice"},
		{csv, "0F1,", "0F1,0F1,", "worker 0, line 1, instruction 2 (0F1): it stands in the list twice"},
	} {
		text := strings.Replace(c.text, c.old, c.new, 1)
		if text == c.text {
			t.Fatalf("%q is not in\n%s", c.old, c.text)
		}
		s, err := exchange.ReadSource("x.txt", []byte(text))
		if err == nil {
			_, err = s.Check(0)
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q for %q: %v", c.new, c.old, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "x.txt")):
			t.Errorf("%q for %q: got %v\nwant it to say %q and the file", c.new, c.old, err, c.want)
		}
	}
}

// TestHeld: the peak that Check reports is accepted as the limit. With a limit of one less, the error names the forward
// that exceeds it.
func TestHeld(t *testing.T) {
	for name, placement := range map[string][][]int{
		"1f1b": schedule.Replicated(4, 1), "interleaved": schedule.Wrap(4, 2), "zb-v": schedule.Vee(4),
		"v-min": schedule.Vee(4), "chimera": schedule.Bidirectional(4),
	} {
		p, err := family.Generate(name, schedule.Settings{Placement: placement, MicroBatches: 8})
		if err != nil {
			t.Fatal(err)
		}
		rep, err := check.Check(p)
		if err != nil {
			t.Fatal(err)
		}
		peak := slices.Max(rep.PeakActivations)
		if err := check.Held(p, peak); err != nil {
			t.Errorf("%s within %d: %v", name, peak, err)
		}
		want := fmt.Sprintf("it would hold %d micro-batches at once; the limit is %d", peak, peak-1)
		if err := check.Held(p, peak-1); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), ", instruction ") {
			t.Errorf("%s within %d: %v, want %q", name, peak-1, err, want)
		}
	}
}

// TestLocate: a random instruction of a Program is doubled. The error names the second copy by its place in the given
// Program. The Program may be lowered or not, and the instruction may be in any part.
func TestLocate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := family.Generate("1f1b-rr", schedule.Settings{Placement: schedule.Replicated(3, 1), MicroBatches: 1,
			Repeat: rapid.IntRange(4, 20).Draw(t, "n")})
		if err == nil && rapid.Bool().Draw(t, "lowered") {
			p, err = lower.Lower(p, lower.Options{})
		}
		if err != nil {
			t.Fatal(err)
		}
		part := rapid.IntRange(0, 2).Draw(t, "part")
		w := rapid.IntRange(0, 2).Draw(t, "worker")
		lists := []*schedule.Part{&p.Prologue, &p.Body, &p.Epilogue}[part]
		if len(*lists) == 0 || len((*lists)[w]) == 0 || part == 1 && p.Repeat == 0 {
			return
		}
		list := slices.Clone((*lists)[w])
		i := rapid.IntRange(0, len(list)-1).Draw(t, "i")
		(*lists)[w] = slices.Insert(list, i+1, list[i])
		s, err := exchange.ReadSource("x.txt", []byte(p.Text()))
		if err != nil {
			t.Fatal(err)
		}
		line, in := 0, false
		for n, l := range strings.Split(p.Text(), "\n") {
			in = in && strings.Contains(l, ":") || l == []string{"prologue", "body", "epilogue"}[part]
			if in && strings.HasPrefix(l, fmt.Sprintf("%d:", w)) {
				line = n + 1
			}
		}
		_, err = s.Check(0)
		want := fmt.Sprintf(", worker %d, line %d, instruction %d (%v): ", w, line, i+1, list[i])
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("two of %v at %d of part %d on worker %d: %v, want it to say %q", list[i], i, part, w, err, want)
		}
	})
}

// TestTooMuchSaysWhere: an error about too little memory names the line and the instruction of the file. This works
// in every repetition, and for a transfer that lowering has added beside an instruction.
func TestTooMuchSaysWhere(t *testing.T) {
	text := "millrace program 1\nname mine\nstages 2\nworkers 2\nmicro_batches 2\nperiod 1\nrepeat 1\nplace p0/0: " +
		"0\nplace p0/1: 1\nbody\n0: 0F0 0F1 0B0 0B1\n1: 1F0 1B0 1F1 1B1\n"
	s, err := exchange.ReadSource("mine.txt", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	steps := *s.Program
	steps.Repeat = 3
	lowered, err := lower.Lower(&steps, lower.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		worker int
		in     schedule.Instruction
		want   string
	}{
		{0, schedule.Instruction{Kind: schedule.F, Micro: 1},
			"worker 0, line 11, instruction 1 (0F1): too much (in mine.txt)"},
		{1, schedule.Instruction{Kind: schedule.F, Stage: 1, Micro: 5},
			"worker 1, line 12, instruction 2 (1F1): too much"},
		{1, schedule.Instruction{Kind: schedule.RF, Stage: 1, Micro: 1},
			"worker 1, line 12, instruction 2 (1F1): too much"},
		{0, schedule.Instruction{Kind: schedule.U, Micro: 0},
			"worker 0, line 11, 0U0, which its order implies: too much"},
		{1, schedule.Instruction{Micro: -1}, "worker 1, line 12: too much"},
	} {
		if got := s.TooMuch(lowered, c.worker, c.in, "too much").Error(); !strings.Contains(got, c.want) {
			t.Errorf("%v: got %q, want %q in it", c.in, got, c.want)
		}
	}
}
