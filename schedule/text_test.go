package schedule_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
)

func TestTextRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomProgram(t)
		back, err := schedule.ParseText(strings.NewReader(p.Text()))
		if err != nil {
			t.Fatalf("%v in\n%s", err, p.Text())
		}
		if d := cmp.Diff(p, back, cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
	})
}

func TestTextRefusals(t *testing.T) {
	p, _ := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2})
	good := p.Text()
	for _, c := range []struct{ from, to, want string }{
		{schedule.TextHeader, "millrace program 9", "line 1"},
		{"stages 2", "stage 2", "line 3: unknown setting \"stage\""},
		{"0F1", "0X1", "line 14: worker 0, instruction 1: schedule: instruction \"0X1\": there is no kind \"X\""},
		{"place p0/1: 1", "place p0/1: 7", "line 12: place p0/1: 7 is over 1"},
		{"1: 1F0", "0: 1F0", "line 15: worker 0 has its list already"},
		{"lowered false", "recompute 1:0", "recompute: stage 1 recomputes 0 layers at a time"},
		{"lowered false", "recompute 0 2", "recompute: 2 is over 1"},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		_, err := schedule.ParseText(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: got %v, want it to say %q\n%s", c.to, c.from, err, c.want, text)
		}
	}
}

func FuzzProgramText(f *testing.F) {
	p, _ := family.Generate("pb", schedule.Settings{Placement: schedule.Replicated(3, 1), MicroBatches: 4,
		Recompute: []plan.Recompute{plan.KeepInput, plan.KeepAll, plan.Every(3)}})
	f.Add(p.Text())
	l, _ := lower.Lower(p, lower.Options{Tied: [][]int{{0, 2}}, Clip: true})
	f.Add(l.Text())
	e, _ := family.Generate("elastic", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2,
		Repeat: 6})
	f.Add(e.Text())
	f.Fuzz(func(t *testing.T, text string) {
		p, err := schedule.ParseText(strings.NewReader(text))
		if err != nil || p.Workers > 1000 || p.Repeat > 4 {
			return
		}
		_, _ = check.Check(p) // checking must end, whatever was read
	})
}

func TestJSONRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomProgram(t)
		var b bytes.Buffer
		if err := p.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		back, err := schedule.ReadJSON(&b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p, back, cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
	})
}

func TestJSONRefusals(t *testing.T) {
	p, _ := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2})
	var b bytes.Buffer
	if err := p.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{`"version":1`, `"version":2`, "version 2"},
		{`"stages"`, `"stage"`, "unknown field \"stage\""},
		{`0F1`, `0Q1`, "no kind \"Q\""},
		{"\n", "{}\n", "something stands behind"},
		{`"workers":2`, `"workers":0`, "names no workers"},
	} {
		_, err := schedule.ReadJSON(strings.NewReader(strings.Replace(b.String(), c.from, c.to, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: got %v, want it to say %q", c.to, c.from, err, c.want)
		}
	}
}

func FuzzProgramJSON(f *testing.F) {
	p, _ := family.Generate("pb", schedule.Settings{Placement: schedule.Replicated(3, 1), MicroBatches: 4})
	var b bytes.Buffer
	if err := p.WriteJSON(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.String())
	f.Fuzz(func(t *testing.T, text string) {
		p, err := schedule.ReadJSON(strings.NewReader(text))
		if err != nil || p.Workers > 1000 || p.Repeat > 4 {
			return
		}
		_, _ = check.Check(p) // checking must end, whatever was read
	})
}

func FuzzInstruction(f *testing.F) {
	for _, s := range []string{"2F0", "p1/2B3@r1", "0SF-1", "3AR0@r2", "0EV9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if in, err := schedule.ParseInstruction(s); err == nil && in.String() != s {
			t.Errorf("%q became %v", s, in)
		}
	})
}

// randomProgram returns a random Program, sometimes lowered.
func randomProgram(t *rapid.T) *schedule.Program {
	p := scheduletest.Random(scheduletest.Drawn(t), scheduletest.Everything())
	if rapid.Bool().Draw(t, "bare") {
		return p
	}
	o := lower.Options{}
	if p.Stages > 2 && p.Weights.Synchronous() {
		o = lower.Options{Tied: [][]int{{0, p.Stages - 1}}, Clip: true, PostValidate: rapid.Bool().Draw(t, "later")}
	}
	lowered, err := lower.Lower(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return lowered
}

// TestNamesComeBack: a Program with any name is the same after it is written as text and read. No name is read as a
// setting.
func TestNamesComeBack(t *testing.T) {
	p, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "order #2", " edges ", "x\nclip true", `"quoted" # and not`, "tab\tand\x00",
		"plain-1.txt", "\u00e4 \xff"} {
		p.Name = name
		back, err := schedule.ParseText(strings.NewReader(p.Text()))
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if d := cmp.Diff(p, back, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%q: %s", name, d)
		}
	}
	plain := strings.Replace(p.Text(), "name ", "name plain # a comment\n#", 1)
	if back, err := schedule.ParseText(strings.NewReader(plain)); err != nil || back.Name != "plain" {
		t.Errorf("a comment behind a name: %v, %v", back, err)
	}
	for _, bad := range []string{`"no end`, `"two" names`, `"a\q"`} {
		text := strings.Replace(plain, "name plain # a comment", "name "+bad, 1)
		if _, err := schedule.ParseText(strings.NewReader(text)); err == nil ||
			!strings.Contains(err.Error(), "line 2: name "+bad+"; what begins with a quote") {
			t.Errorf("name %s: %v", bad, err)
		}
	}
}

// TestLongWordsAreCut: an error about a file does not repeat a long word in full.
func TestLongWordsAreCut(t *testing.T) {
	long := strings.Repeat("9", 1<<16)
	header := schedule.TextHeader + "\nstages 1\nworkers 1\n"
	letters := strings.Repeat("F", 1<<16)
	for _, line := range []string{long, "repeat " + long, "repeat x" + long, "place p0/0: " + long, "body\n0: 0F" + long,
		"body\n0: " + letters, "body\n0: 0" + letters + "0", "recompute 0:" + long, "name \"" + long} {
		if _, err := schedule.ParseText(strings.NewReader(header + line)); err == nil || len(err.Error()) > 500 {
			t.Errorf("%.40q: %.600v", line, err)
		}
	}
}
