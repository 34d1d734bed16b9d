package family

import (
	"reflect"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// A handwritten Program can be registered as a family. It is generated for any number of steps, lowered or not.
func TestRegisterProgram(t *testing.T) {
	for i, c := range []struct {
		family  string
		s       schedule.Settings
		lowered bool
	}{
		{"zb-h1", schedule.Settings{Placement: schedule.Replicated(3, 1), MicroBatches: 5}, false},
		{"zb-v", schedule.Settings{Placement: schedule.Vee(2), MicroBatches: 6}, true},
		{"chimera", schedule.Settings{Placement: schedule.Bidirectional(4), MicroBatches: 4}, true},
	} {
		p, err := Generate(c.family, c.s)
		if err != nil {
			t.Fatal(err)
		}
		want := *p
		if c.lowered {
			if p, err = lower.Lower(p, lower.Options{Clip: true}); err != nil {
				t.Fatal(err)
			}
		}
		p.Name = "written" + strings.Repeat("!", i)
		defer families.Remove(p.Name)
		if err := RegisterProgram(p); err != nil {
			t.Fatal(err)
		}
		s := c.s
		s.Repeat = 7
		got, err := Generate(p.Name, s)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Body, want.Body) || got.Minibatches() != 7 {
			t.Errorf("%s: the body is\n%v, want\n%v; %d minibatches", c.family, got.Body, want.Body, got.Minibatches())
		}
		s.MicroBatches++
		if _, err := Generate(p.Name, s); err == nil {
			t.Error("it took other micro-batches than it has")
		}
	}
}

// A registered stream can be generated with any number of repetitions of its body, between its prologue and its
// epilogue.
func TestRegisterStream(t *testing.T) {
	p, err := Generate("1f1b-rr", schedule.Settings{Placement: [][]int{{0, 1}, {2}}, MicroBatches: 1, Repeat: 20})
	if err != nil {
		t.Fatal(err)
	}
	p.Name = "stream"
	defer families.Remove(p.Name)
	if err := RegisterProgram(p); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for n := 1; n < 40; n++ {
		got, err := Generate(p.Name, schedule.Settings{Placement: p.Placement[0], MicroBatches: 1, Repeat: n})
		if err != nil {
			continue
		}
		ran++
		if _, err := check.Check(got); err != nil || got.Minibatches() != n {
			t.Errorf("%d minibatches: %v, %d in it", n, err, got.Minibatches())
		}
	}
	if ran < 10 {
		t.Errorf("it suits %d of 39 numbers of minibatches; one in two was meant", ran)
	}
}

func TestRegisterProgramRefuses(t *testing.T) {
	p, err := Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := RegisterProgram(p); err == nil || !strings.Contains(err.Error(), `"1f1b"`) {
		t.Errorf("a family's name: %v", err)
	}
	for _, name := range []string{"GPipe", "Sno", "PipeDream", ""} { // names that a plan understands in another way
		if p.Name = name; RegisterProgram(p) == nil {
			t.Errorf("a program is called %q", name)
			families.Remove(name)
		}
	}
	p.Name = "broken"
	p.Body[0] = p.Body[0][1:]
	if err := RegisterProgram(p); err == nil {
		t.Error("a program without its first forward was taken")
	}
	p, _ = Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 3})
	if p, err = lower.Lower(p, lower.Options{}); err != nil {
		t.Fatal(err)
	}
	p.Name = "eager"
	list := p.Body[1] // ... 1RF1 1F1: in this list, the receive 1RF1 comes one place earlier
	for i := range list {
		if list[i].Kind == schedule.RF && list[i].Micro == 1 {
			list[i], list[i-1] = list[i-1], list[i]
			break
		}
	}
	if err := RegisterProgram(p); err == nil || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("a receive that stands elsewhere: %v", err)
	}
}

// TestAValidatedProgramIsReadBack: a Program whose updates are validated later can be registered, as the family of one
// of its steps.
func TestAValidatedProgramIsReadBack(t *testing.T) {
	p := postValidated(t, "zb-h1", schedule.Settings{Placement: schedule.Replicated(3, 1), MicroBatches: 6, Repeat: 4})
	p.Name = "zb-h1-validated"
	defer families.Remove(p.Name)
	if err := RegisterProgram(p); err != nil {
		t.Fatal(err)
	}
	for repeat := 1; repeat <= 5; repeat++ {
		s := schedule.Settings{Placement: schedule.Replicated(3, 1), MicroBatches: 6, Repeat: repeat}
		got, want := postValidated(t, p.Name, s), postValidated(t, "zb-h1", s)
		if want.Name = got.Name; got.Text() != want.Text() {
			t.Errorf("%d steps:\n%s\nwant\n%s", repeat, got.Text(), want.Text())
		}
	}
}

func postValidated(t testing.TB, family string, s schedule.Settings) *schedule.Program {
	t.Helper()
	p, err := Generate(family, s)
	if err == nil {
		p, err = lower.Lower(p, lower.Options{Clip: true, PostValidate: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}
