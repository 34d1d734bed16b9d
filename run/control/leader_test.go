package control

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/trace"
)

// follows returns a leader of two ready processes, with Program 1 running.
func follows(t *testing.T) *Leader {
	t.Helper()
	l := NewLeader(2, 3)
	for p := range 2 {
		if _, err := l.Receive(Message{N: 1, From: p, Body: Ready{}}); err != nil {
			t.Fatal(err)
		}
	}
	l.Begin(Load{}, 1)
	return l
}

func TestALeaderRefusesWhatIsOutOfOrder(t *testing.T) {
	ended := Message{N: 2, Epoch: 1, Body: Ended{}}
	for says, messages := range map[string][]Message{
		"from process 2 of 2":                  {{N: 1, From: 2, Body: Ready{}}},
		"its last one was number 1":            {{N: 3, Epoch: 1, Body: Ended{}}},
		"it was ready before":                  {{N: 2, Body: Ready{}}},
		"program 1 is the last":                {{N: 2, Epoch: 2, Body: Ended{}}},
		"it has ended the program":             {ended, {N: 3, Epoch: 1, Body: Step{}}},
		"nobody asked":                         {{N: 2, Epoch: 1, Body: Begun{}}},
		"left of program 1: nobody was told":   {{N: 2, Epoch: 1, Body: Left{}}},
		"record of program 1: nobody was told": {{N: 2, Epoch: 1, Body: Record{}}},
		"a process does not say this":          {{N: 2, Epoch: 1, Body: Limit{}}},
		"done of program 1: nothing was order": {{N: 2, Epoch: 1, Body: Done{}}},
		"4 workers have come to drain 0":       {{N: 2, Epoch: 1, Body: Reached{Workers: 4}}},
		"3 workers are at drain 1; the next":   {{N: 2, Epoch: 1, Body: Reached{Drain: 1, Workers: 3}}},
	} {
		l := follows(t)
		var err error
		for _, m := range messages {
			if err != nil {
				t.Fatal(err)
			}
			_, err = l.Receive(m)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v; want something about %q", messages, err, says)
		}
	}
}

func TestAFollowerRefusesWhatIsOutOfOrder(t *testing.T) {
	load := Message{N: 1, Epoch: 1, Body: Load{}}
	for says, messages := range map[string][]Message{
		"its last one was number 0":     {{N: 2, Epoch: 1, Body: Load{}}},
		"it says that it is process 1":  {{N: 1, From: 1, Epoch: 1, Body: Load{}}},
		"program 0 is under way: false": {{N: 1, Epoch: 2, Body: Load{}}},
		"program 1 is under way: true":  {load, {N: 2, Epoch: 2, Body: Save{}}},
		"a program is under way":        {load, {N: 2, Epoch: 1, Body: Look{}}},
		"program 1 is the last":         {load, {N: 2, Epoch: 2, Body: Stop{}}},
		"it answers no stop":            {load, {N: 2, Epoch: 1, Body: Limit{}}},
		"no program is under way":       {{N: 1, Body: Release{}}},
		"a leader does not say this":    {load, {N: 2, Epoch: 1, Body: Ended{}}},
	} {
		f := NewFollower(1, 1)
		var err error
		for _, m := range messages {
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Receive(m)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v; want something about %q", messages, err, says)
		}
	}
	f := NewFollower(0, 1)
	for i, m := range []Message{load, {N: 2, Epoch: 1, Body: Stop{}}, {N: 3, Epoch: 1, Body: Stop{}},
		{N: 4, Epoch: 1, Body: Failed{}}, {N: 5, Epoch: 1, Body: Beat{}}, {N: 6, Epoch: 1, Body: Leave{}}} {
		do, err := f.Receive(m)
		if err != nil {
			t.Fatal(err)
		}
		if carriedOut := i != 2 && i != 4; (do != nil) != carriedOut { // ignored: a second Stop, a Beat after a failure
			t.Errorf("message %d, %T: to be done: %v", i+1, m.Body, do)
		}
	}
}

// A run has stalled if no process computes, every process has been quiet for the given time, and some process still
// runs the Program. It has also stalled if a process reports that it is stuck.
func TestStallsAreOfAllProcesses(t *testing.T) {
	waits := []Wait{{Worker: 1}}
	for _, c := range []struct {
		name    string
		needs   [2]Needs
		stalled bool
	}{
		{"both quiet", [2]Needs{{QuietS: 5, Waits: waits}, {QuietS: 6}}, true},
		{"one has ended", [2]Needs{{QuietS: 5, Waits: waits}, {QuietS: 6, Ended: true}}, true},
		{"both have ended", [2]Needs{{QuietS: 5, Ended: true}, {QuietS: 6, Ended: true}}, false},
		{"one was not quiet for long", [2]Needs{{QuietS: 5}, {QuietS: 3.9}}, false},
		{"one computes", [2]Needs{{QuietS: 5, Running: true}, {QuietS: 6}}, false},
		{"one is stuck alone", [2]Needs{{Stuck: true, Waits: waits}, {QuietS: 6}}, true},
	} {
		l := follows(t)
		l.Beat()
		if what, owing := l.Owing(); l.Beat() != nil || what != "answered" || !slices.Equal(owing, []int{0, 1}) {
			t.Errorf("%s: asked again before all have answered; %v owe %q", c.name, owing, what)
		}
		for p, n := range c.needs {
			if _, _, stalled := l.Stalled(4); stalled && p == 0 {
				t.Errorf("%s: stalled before anybody has answered", c.name)
			}
			if _, err := l.Receive(Message{N: 2, From: p, Epoch: 1, Body: n}); err != nil {
				t.Fatal(err)
			}
		}
		quietS, said, stalled := l.Stalled(4)
		if stalled != c.stalled || stalled && len(said) != 1 || stalled && !c.needs[0].Stuck && quietS != 5 ||
			owes(l) != "" {
			t.Errorf("%s: stalled: %v, for %v s, %v", c.name, stalled, quietS, said)
		}
	}
}

// owes returns as text which processes owe what. If none owes anything, it returns those in which nothing has happened
// for 5 s.
func owes(l *Leader) string {
	what, processes := l.Owing()
	if len(processes) == 0 {
		what, processes = l.Still(5)
	}
	if len(processes) == 0 {
		return ""
	}
	return fmt.Sprint(what, processes)
}

// A process owes the leader answers, and after Leave only Left. A Ready that a process owes is reported only after
// nothing has happened in that process for some seconds.
func TestWhatProcessesOweTheLeader(t *testing.T) {
	n := make([]uint64, 3)
	var l *Leader
	hears := func(process int, body Body) {
		t.Helper()
		n[process]++
		if _, err := l.Receive(Message{N: n[process], From: process, Epoch: l.epoch, Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	owed := func(want string) {
		t.Helper()
		if got := owes(l); got != want {
			t.Fatalf("processes owe %q; want %q", got, want)
		}
	}
	l = NewLeader(3, 3)
	owed("")
	l.Beat()
	hears(2, Needs{Owes: true, QuietS: 4.9, Ended: true})
	hears(1, Needs{Owes: true, QuietS: 5, Ended: true})
	owed("answered[0]")
	hears(0, Needs{Owes: true, QuietS: 6, Ended: true})
	owed("said that it is ready[0 1]")
	hears(1, Ready{})
	owed("said that it is ready[0]")
	l.Beat()
	hears(0, Needs{Owes: true, Ended: true}) // QuietS is 0: something has happened
	hears(1, Needs{QuietS: 10, Ended: true})
	hears(2, Needs{Owes: true, QuietS: 0.1, Ended: true})
	owed("")
	hears(2, Ready{})
	hears(0, Ready{})
	owed("")
	l.Begin(Load{}, 1)
	owed("")
	l.Beat()
	hears(1, Needs{})
	owed("answered[0 2]")
	l.Leave(Leave{}) // after a Beat that processes 0 and 2 have not answered
	owed("left[0 1 2]")
	hears(2, Record{Timeline: &trace.Timeline{}})
	owed("left[0 1 2]")
	hears(2, Left{})
	owed("left[0 1]")
	l.Lose(1)
	owed("left[0]")
	if l.Gone() {
		t.Error("the leader's own process has not left")
	}
	hears(0, Left{})
	owed("")
	if !l.Gone() {
		t.Error("all have left, or are lost")
	}

	l, n = NewLeader(3, 3), make([]uint64, 3)
	for p := range 3 {
		hears(p, Ready{})
	}
	l.Beat()
	hears(1, Failed{Text: "it broke"}) // a failed process does not answer a Beat
	owed("")
	l.Leave(Leave{})
	owed("left[0 1 2]")
}

// A record without a Timeline is refused, and so is a second report of a process's part of a step.
func TestWhatWouldCountTwiceIsRefused(t *testing.T) {
	l := follows(t)
	l.Leave(Leave{})
	if _, err := l.Receive(Message{N: 2, From: 1, Epoch: 1, Body: Record{}}); err == nil ||
		!strings.Contains(err.Error(), "process 1, record of program 1: it has no timeline") {
		t.Error(err)
	}
	progress := NewProgress([][]int{{0}, {1}}, 1)
	part := Step{Step: 4, Workers: []Did{{BusyS: 1, PeakBytes: 1}}}
	if _, whole, err := progress.Add(1, part, 0); whole || err != nil {
		t.Fatal(whole, err)
	}
	if _, whole, err := progress.Add(1, part, 0); whole || err == nil ||
		!strings.Contains(err.Error(), "process 1 has said before that its part of step 5 stands") {
		t.Error(whole, err)
	}
	if _, whole, err := progress.Add(0, part, 0); !whole || err != nil {
		t.Error(whole, err)
	}
}

// Leave is the last message to a process. If a process reports a failure before it receives Leave, this failure is the
// run's error, but only the leader knows it.
func TestNothingIsSaidBehindLeave(t *testing.T) {
	l := follows(t)
	l.Leave(Leave{})
	late, err := l.Receive(Message{N: 2, From: 1, Epoch: 1, Body: Failed{Process: 1, Text: "late"}})
	if err != nil || len(late) > 0 || l.Failed() == nil || l.Failed().Text != "late" {
		t.Errorf("%v, %v; the run has failed of %v", late, err, l.Failed())
	}
	if said := slices.Concat(l.Fail(Failed{Text: "later"}), l.Stop(), l.Beat(), l.Leave(Leave{})); len(said) > 0 {
		t.Errorf("it says %v", said)
	}
	f := NewFollower(1, 1)
	if _, err := f.Receive(Message{N: 1, Body: Leave{}}); err != nil {
		t.Fatal(err)
	}
	for _, body := range []Body{Failed{}, Beat{}, Leave{}, Load{}} {
		if do, err := f.Receive(Message{N: 2, Body: body}); do != nil || err == nil ||
			!strings.Contains(err.Error(), "has told the process to leave") {
			t.Errorf("%s behind leave: %v, %v", body.kind(), do, err)
		}
	}
}

// parts returns the messages in which processes report steps with these losses. The messages of each process are in
// order, and the processes are mixed at random. Each loss belongs to one process, and a worker's values encode the
// worker and the step.
func parts(g *rand.Rand, by [][]int, shift []float64, losses [][]float64) (queue []Message) {
	next := make([]int, len(by))
	owner := make([]int, len(losses[0]))
	for i := range owner {
		owner[i] = g.IntN(len(by))
	}
	for len(queue) < len(losses)*len(by) {
		p := g.IntN(len(by))
		n := next[p]
		if n == len(losses) {
			continue
		}
		next[p]++
		s := Step{Step: n, StartS: float64(10*n+p) - shift[p], EndS: float64(10*n+15+p) - shift[p]}
		for _, k := range by[p] {
			s.Workers = append(s.Workers, Did{BusyS: float64(k), PeakBytes: int64(100*n + k), SentBytes: int64(n)})
		}
		for _, i := range g.Perm(len(owner)) {
			if owner[i] == p {
				s.Losses = append(s.Losses, Loss{i, losses[n][i]})
			}
		}
		queue = append(queue, Message{From: p, Body: s})
	}
	return queue
}

// The loss of a step is the sum of its parts, which are added by index. So it has the same bits however the parts are
// distributed over processes, and in whatever order they arrive. On the leader's clock, a step lasts from its first
// start, or from the end of the step before if that is later, to its last end.
func TestStepsAreAddedUpInOrder(t *testing.T) {
	const workers, slices_, steps = 5, 12, 20
	g := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		of := split(g, workers, 1+g.IntN(workers))
		processes := slices.Max(of) + 1
		by := make([][]int, processes)
		for k, p := range of {
			by[p] = append(by[p], k)
		}
		shift := make([]float64, processes)
		for p := 1; p < processes; p++ {
			shift[p] = float64(g.IntN(100)) - 50
		}
		losses := make([][]float64, steps)
		for n := range steps {
			for range slices_ {
				losses[n] = append(losses[n], g.NormFloat64()*float64(uint64(1)<<g.IntN(40)))
			}
		}
		queue := parts(g, by, shift, losses)
		progress := NewProgress(by, slices_)
		done, took := 0, 0.0
		for _, m := range queue {
			f, whole, err := progress.Add(m.From, m.Body.(Step), shift[m.From])
			if err != nil {
				t.Fatal(err)
			}
			if !whole {
				continue
			}
			want := 0.0
			for _, l := range losses[done] {
				want += l
			}
			last := float64(10*done + 14 + processes)
			wantTook := last - max(float64(10*done), float64(10*(done-1)+14+processes))
			if done == 0 {
				wantTook = last
			}
			for k, did := range f.Workers {
				if did != (Did{BusyS: float64(k), PeakBytes: int64(100*done + k), SentBytes: int64(done)}) {
					t.Fatalf("worker %d did %+v in step %d", k, did, done)
				}
			}
			if f.Step != done || len(f.Workers) != workers || f.Loss != want || f.BusyS != 0+1+2+3+4 || f.TookS != wantTook {
				t.Fatalf("step %d: %+v; the loss is %v, it took %v", done, f, want, wantTook)
			}
			done++
			took += wantTook
		}
		if done != steps || progress.TookS != took || progress.BusyS != steps*10 || progress.PeakBytes[4] != 100*(steps-1)+4 {
			t.Fatalf("%d steps of %d: %+v", done, steps, progress)
		}
	}
}

func TestPartsOfAStepThatAreNotItsProcesssAreRefused(t *testing.T) {
	progress := NewProgress([][]int{{0}, {1}}, 2)
	for name, s := range map[string]Step{
		"has loss 2; there are 2":      {Workers: make([]Did, 1), Losses: []Loss{{2, 1}}},
		"has loss -1; there are 2":     {Workers: make([]Did, 1), Losses: []Loss{{-1, 1}}},
		"what 2 workers did; it has 1": {Workers: make([]Did, 2)},
		"what 0 workers did; it has 1": {},
	} {
		if _, _, err := progress.Add(1, s, 0); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v; want something about %q", s, err, name)
		}
	}
}
