package control

import (
	"net"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// A Load and ten steps of 1,024 processes take seconds and little memory: a replica of a pipeline of four stages each,
// whose Links are the real ones.
func TestManyProcesses(t *testing.T) {
	const processes, stages, steps = 1024, 4, 10
	p, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(stages, processes/stages),
		MicroBatches: 4, Repeat: steps})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	text := p.Text()
	peak := watchMemory()
	began := time.Now()
	links := make([]Link, processes)
	var all sync.WaitGroup
	for i := range links {
		a, b := net.Pipe()
		links[i] = Over(a)
		all.Go(func() { follow(t, Over(b), i, steps) })
	}
	type heard struct {
		m   Message
		err error
	}
	inbox := make(chan heard, processes)
	for _, l := range links {
		l.Start(func(m Message, err error) { inbox <- heard{m, err} })
	}
	leader, whole := NewLeader(processes, processes), 0
	of := make([][]int, processes)
	for i := range of {
		of[i] = []int{i}
	}
	progress := NewProgress(of, 4)
	tell := func(messages []Message) {
		for _, m := range messages {
			m = m.Shared()
			for _, l := range links {
				if err := l.Send(m); err != nil {
					t.Error(err)
				}
			}
		}
	}
	closed := 0
	for begun := false; closed < processes; {
		h := <-inbox
		if h.err != nil {
			closed++
			continue
		}
		answer, err := leader.Receive(h.m)
		if err != nil {
			t.Fatal(err)
		}
		tell(answer)
		if s, is := h.m.Body.(Step); is {
			_, all, err := progress.Add(h.m.From, s, 0)
			if err != nil {
				t.Fatal(err)
			}
			if all {
				whole++
			}
		}
		switch {
		case !begun && leader.Ready():
			begun = true
			tell(leader.Begin(Load{Program: text}, 1))
		case begun && !leader.Under():
			tell(leader.Leave(Leave{}))
		}
	}
	took := time.Since(began)
	bytes := peak()
	for _, l := range links {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	t.Logf("%d processes, a program of %d KiB: %v, %d KiB each", processes, len(text)>>10, took, bytes/processes>>10)
	if whole != steps || took > 10*time.Second || bytes > processes<<20 {
		t.Errorf("%d steps of %d processes took %v and %d KiB each", whole, processes, took, bytes/processes>>10)
	}
}

// follow is a process that does its part of some steps at once.
func follow(t *testing.T, l Link, process, steps int) {
	f := NewFollower(process, 1)
	say := func(body Body) {
		if m, useful := f.Say(body); useful {
			if err := l.Send(m); err != nil {
				t.Error(err)
			}
		}
	}
	leave := make(chan struct{})
	l.Start(func(m Message, err error) {
		if err != nil {
			return
		}
		body, err := f.Receive(m)
		if err != nil {
			t.Error(err)
		}
		switch body.(type) {
		case Load:
			for step := range steps {
				say(Step{Step: step, StartS: 1, EndS: 2, Workers: []Did{{BusyS: 1, PeakBytes: 1, LiveBytes: 1}}})
			}
			say(Ended{Minibatches: steps, PeakBytes: []int64{1}})
		case Leave:
			say(Left{})
			close(leave)
		}
	})
	say(Ready{})
	<-leave
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// watchMemory looks at the memory in use, of heap and stacks, until the function that it returns is called, which says
// how much more there came to be.
func watchMemory() func() uint64 {
	use := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64() + s[1].Value.Uint64()
	}
	looks := []uint64{use()}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				looks = append(looks, use())
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-done
		return slices.Max(looks) - looks[0]
	}
}
