package control

import (
	"slices"
	"strings"
	"testing"
)

// orders returns a leader of three processes that are ready, and a function that passes it a process's message.
func orders(t *testing.T) (*Leader, func(process int, body Body) error) {
	t.Helper()
	l, n := NewLeader(3, 3), make([]uint64, 3)
	hears := func(process int, body Body) error {
		n[process]++
		_, err := l.Receive(Message{N: n[process], From: process, Body: body})
		return err
	}
	for p := range 3 {
		if err := hears(p, Ready{}); err != nil {
			t.Fatal(err)
		}
	}
	return l, hears
}

// An order is over once every process has sent Done, and then the next order may be given. The leader says that a
// process owes Done only after that process has reported that nothing happens in it.
func TestAnOrderIsOverOnceAllHaveCarriedItOut(t *testing.T) {
	l, hears := orders(t)
	for _, body := range []Body{Mark{Draft: "d"}, Look{Draft: "d"}, Prune{}, Commit{Draft: "e"}} {
		if sent := l.Order(body); len(sent) != 1 || sent[0].Body != body || !l.Ordered() {
			t.Fatalf("%v: %v is sent", body, sent)
		}
		if owes(l) != "" {
			t.Errorf("%s: it is owed at once: %s", body.kind(), owes(l))
		}
		l.Beat()
		for p := range 3 {
			if err := hears(p, Needs{Owes: true, QuietS: 5, Ended: true}); err != nil {
				t.Fatal(err)
			}
		}
		for i, p := range []int{2, 0, 1} {
			if want := []string{"[0 1 2]", "[0 1]", "[1]"}[i]; !strings.HasPrefix(owes(l), "carried out a "+body.kind()) ||
				!strings.HasSuffix(owes(l), want) {
				t.Errorf("%s: owed are %q; want %s", body.kind(), owes(l), want)
			}
			done := Done{}
			if _, looks := body.(Look); looks {
				done.Keeper = []int{0, 0, 2}[p]
			}
			if err := hears(p, done); err != nil {
				t.Fatal(err)
			}
			if l.Ordered() != (i < 2) {
				t.Errorf("%s: under way with %d answers: %v", body.kind(), i+1, l.Ordered())
			}
		}
		if _, looks := body.(Look); looks && !slices.Equal(l.Keepers(), []int{0, 0, 2}) {
			t.Error(l.Keepers())
		}
	}
	l.Begin(Load{}, 1)
}

func TestWhatIsNoAnswerToAnOrderIsRefused(t *testing.T) {
	l, hears := orders(t)
	l.Order(Look{})
	if err := hears(1, Done{Keeper: 2}); err == nil || !strings.Contains(err.Error(), "process 2 keeps its folder") {
		t.Error(err)
	}
	l, hears = orders(t)
	l.Order(Prune{})
	if err := hears(1, Done{}); err != nil {
		t.Fatal(err)
	}
	if err := hears(1, Done{}); err == nil || !strings.Contains(err.Error(), "nothing was ordered") {
		t.Error(err)
	}
}

// If not all processes have carried out an order, a failure ends the order, and so does Leave. Later answers to the
// order are ignored.
func TestAnOrderEndsWithTheRun(t *testing.T) {
	l, hears := orders(t)
	l.Order(Prune{})
	if err := hears(1, Failed{Text: "disk"}); err != nil || l.Ordered() {
		t.Error(err, l.Ordered())
	}
	if err := hears(2, Done{}); err != nil {
		t.Error(err)
	}
	l, hears = orders(t)
	l.Order(Prune{})
	if l.Leave(Leave{Draft: "d"}); l.Ordered() || !strings.HasPrefix(owes(l), "left") {
		t.Error(l.Ordered(), owes(l))
	}
	if err := hears(2, Done{}); err != nil {
		t.Error(err)
	}
}

// A leader that gives an order at the wrong time panics, because that is a bug.
func TestAnOrderBesideAProgramPanics(t *testing.T) {
	for name, before := range map[string]func(l *Leader){
		"program": func(l *Leader) { l.Begin(Load{}, 1) },
		"order":   func(l *Leader) { l.Order(Prune{}) },
	} {
		l, _ := orders(t)
		before(l)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("an order beside another %s was given", name)
				}
			}()
			l.Order(Look{})
		}()
	}
}

// Checkpoints that stages save by themselves are committed in order while their Program goes on.
func TestCheckpointsAreCommittedBesideAProgram(t *testing.T) {
	l, hears := orders(t)
	f := NewFollower(0, 1)
	follow := func(messages []Message) {
		t.Helper()
		for _, m := range messages {
			if _, err := f.Receive(m); err != nil {
				t.Fatalf("%T: %v", m.Body, err)
			}
		}
	}
	f.in = l.out // as if it had received the leader's earlier messages
	follow(l.Begin(Load{}, 1))
	for _, order := range []Body{Commit{Draft: "d"}, Prune{Behind: 4}} {
		follow(l.Order(order))
		for p := range l.process {
			if !l.Ordered() || !l.Under() {
				t.Fatalf("%T: ordered %v, under %v", order, l.Ordered(), l.Under())
			}
			if err := hears(p, Done{}); err != nil {
				t.Fatal(err)
			}
		}
		if l.Ordered() || l.Refused() != nil {
			t.Fatalf("%T is not over", order)
		}
	}
}
