package machine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/schedule/programs"
)

func generated(t testing.TB, order string, s schedule.Settings) *schedule.Program {
	t.Helper()
	p, err := family.Generate(order, s)
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A Machine keeps its state when the next Program is loaded, which is allowed only after all lists have ended. A
// message of the next Program may arrive before that Program is loaded.
func TestTheNextProgram(t *testing.T) {
	train := generated(t, "1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2})
	rest, err := programs.Evaluation(schedule.Replicated(2, 1), 3)
	if err != nil {
		t.Fatal(err)
	}
	m, err := machine.New(train, machine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Load(rest); err == nil || !strings.Contains(err.Error(),
		"worker 0 has not ended, its next instruction is 0F0") {
		t.Errorf("a Program replaced one that was under way: %v", err)
	}
	playOn(t, train, m)
	m.Arrive(1, schedule.Instruction{Kind: schedule.SF})
	if err := m.Load(rest); err != nil {
		t.Fatal(err)
	}
	for w := range 2 { // both workers go past the drain
		if n := m.Poll(w); !n.Ready() {
			t.Fatal(n)
		}
		m.Start(w)
		m.Issued(w, true)
	}
	if n := m.Poll(1); !n.Ready() || n.At.String() != "1RF0" {
		t.Errorf("the message that came early is lost: %v", n)
	}
	other := generated(t, "1f1b", schedule.Settings{Placement: schedule.Replicated(3, 1), MicroBatches: 2})
	if m, err = machine.Play(train, machine.Options{}); err != nil || !m.Ended() {
		t.Fatal(err)
	}
	if err := m.Load(other); err == nil || !strings.Contains(err.Error(), "has 3 workers, this one 2") {
		t.Errorf("another number of workers: %v", err)
	}
}

// playOn runs a Machine to the end of its lists; transfers take no time.
func playOn(t *testing.T, p *schedule.Program, m *machine.Machine) {
	t.Helper()
	for moved := true; moved; {
		moved = false
		for w := range p.Workers {
			for n := m.Poll(w); n.Ready(); n = m.Poll(w) {
				m.Start(w)
				m.Issued(w, true)
				for _, to := range p.Receivers(n.At) {
					m.Arrive(to, n.At)
				}
				moved = true
			}
		}
	}
	if !m.Ended() {
		t.Fatalf("program %s stops: %v", p.Name, m.Waits())
	}
}

func TestOptionsAreChecked(t *testing.T) {
	p := generated(t, "single", schedule.Settings{Placement: schedule.Replicated(1, 1), MicroBatches: 1})
	for want, o := range map[string]machine.Options{"-1 cores": {Cores: machine.Share(-1)}, "ahead": {Ahead: -1},
		"2 ahead on 1 shared": {Ahead: 2, Cores: machine.Share(1)}, "-3 slots": {Slots: -3}} {
		if _, err := machine.New(p, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := machine.New(&schedule.Program{Name: "x", Workers: 1}, machine.Options{}); err == nil ||
		!strings.Contains(err.Error(), "not lowered") {
		t.Errorf("a Program of computations alone: %v", err)
	}
}

// A Barrier at the leader counts the workers of all processes, for one drain after the other.
func TestBarrier(t *testing.T) {
	b := machine.NewBarrier(5)
	for _, step := range []struct {
		drain, workers int
		released       bool
		refused        string
	}{
		{0, 3, false, ""}, {1, 1, false, "the next one is drain 0"}, {0, 3, false, "beside 3 of 5"}, {0, 0, false,
			"0 workers"},
		{0, 2, true, ""}, {0, 1, false, "the next one is drain 1"}, {1, 5, true, ""}, {2, 1, false, ""},
	} {
		released, err := b.Reach(step.drain, step.workers)
		if released != step.released || (err == nil) != (step.refused == "") || err != nil &&
			!strings.Contains(err.Error(), step.refused) {
			t.Errorf("%+v: %v, %v", step, released, err)
		}
	}
}

// ExampleProcess runs an evaluation in two processes. Each has its own state, messages go between them, and a Barrier
// at a leader releases drains.
func ExampleProcess() {
	p, err := programs.Evaluation(schedule.Replicated(2, 1), 6)
	if err != nil {
		panic(err)
	}
	barrier := machine.NewBarrier(p.Workers)
	var processes []*machine.Process
	for w := range p.Workers {
		s, err := machine.NewProcess(p, []int{w}, machine.Options{})
		if err != nil {
			panic(err)
		}
		processes = append(processes, s)
	}
	told := make([]int, p.Workers) // by process: drains that the leader knows
	for moved := true; moved; {
		moved = false
		for w, s := range processes {
			for n := s.Poll(w); n.Ready(); n = s.Poll(w) {
				s.Start(w)
				s.Issued(w, true)
				for _, to := range p.Receivers(n.At) {
					processes[to].Arrive(to, n.At)
				}
				moved = true
			}
			if drain, workers, all := s.AtDrain(); all && told[w] == drain {
				told[w]++
				released, err := barrier.Reach(drain, workers)
				if err != nil {
					panic(err)
				}
				if released {
					fmt.Println("drain", drain, "is released")
					for _, other := range processes {
						other.Release()
					}
					moved = true
				}
			}
		}
	}
	fmt.Println(processes[0].Ended(), processes[1].Ended())
	// Output:
	// drain 0 is released
	// drain 1 is released
	// drain 2 is released
	// true true
}

// FuzzDriver makes random calls to a Machine: it starts, ends, delivers and stops in any order. A Start succeeds only
// if Poll allowed it. Wrong calls panic with a message of this package.
func FuzzDriver(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5}, uint8(0))
	f.Add([]byte{0, 8, 16, 1, 9, 17, 2, 10, 18, 7}, uint8(5))
	p := generated(f, "1f1b", schedule.Settings{Placement: schedule.Replicated(2, 2), MicroBatches: 3, Repeat: 2})
	f.Fuzz(func(t *testing.T, calls []byte, options uint8) {
		m, err := machine.New(p, machine.Options{Cores: machine.Share(int(options & 3)), Slots: int(options >> 2 & 3)})
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range calls {
			w := int(call>>3) % p.Workers
			n := m.Poll(w)
			ok := said(t, func() {
				switch call & 7 {
				case 0, 1:
					m.Start(w)
				case 2, 3:
					m.Issued(w, call&1 == 0)
				case 4:
					m.Done(w, n.At)
				case 5:
					m.Arrive(w, schedule.Instruction{Kind: schedule.SF, Micro: int32(call >> 5),
						Replica: int16(call >> 4 & 1)})
				case 6:
					m.Credit(w, int(call>>5)%p.Workers)
				case 7:
					m.Limit(int(call >> 5))
				}
			})
			if ok && call&7 < 2 && !n.Ready() {
				t.Fatalf("%v was started", n)
			}
		}
	})
}

// said calls f and reports whether it did not panic. A panic must have a message of this package.
func said(t *testing.T, f func()) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			if text, is := p.(string); !is || !strings.HasPrefix(text, "machine: ") {
				t.Fatal(p)
			}
		}
	}()
	f()
	return true
}

// TestProcessesOfNobody: a process with an unknown or doubled worker is refused.
func TestProcessesOfNobody(t *testing.T) {
	p := generated(t, "1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 1})
	for want, workers := range map[string][]int{"worker 1 is named twice": {1, 0, 1},
		"no worker 2": {0, 2}, "no worker -1": {-1}} {
		if _, err := machine.NewProcess(p, workers, machine.Options{Cores: machine.Share(1)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("workers %v: %v, want %q", workers, err, want)
		}
	}
}
