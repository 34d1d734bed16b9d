package rendezvous

import (
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// agreement is what processes say to each other in a run of so many steps, without a tensor: rank 0 sends a Program,
// each process says its part of every step, then the end.
type agreement struct {
	program string
	steps   int
}

// lead is rank 0's part. Each of the others has a worker.
func (a agreement) lead(links []net.Conn) error {
	l := control.NewLeader(len(links), len(links))
	type heard struct {
		from int
		m    control.Message
		err  error
	}
	came := make(chan heard, (a.steps+4)*len(links)) // all that comes: whoever says it does not wait
	open := make([]control.Link, len(links))
	own, other := control.Pair()
	open[0] = own
	var all sync.WaitGroup
	all.Go(func() { _ = a.follow(0, other) })
	for rank, link := range links {
		if rank > 0 {
			open[rank] = control.Over(link)
		}
		open[rank].Start(func(m control.Message, err error) { came <- heard{rank, m, err} })
	}
	tell := func(messages []control.Message) error {
		for _, m := range messages {
			for _, link := range open {
				if err := link.Send(m); err != nil {
					return err
				}
			}
		}
		return nil
	}
	steps, begun := 0, false
	for !l.Gone() {
		h := <-came
		if h.err != nil && l.HasLeft(h.from) {
			continue
		} else if h.err != nil {
			return h.err
		}
		if _, step := h.m.Body.(control.Step); step {
			steps++
		}
		messages, err := l.Receive(h.m)
		if err != nil {
			return err
		}
		if l.Ready() && !begun {
			begun, messages = true, l.Begin(control.Load{Program: a.program}, 1)
		} else if begun && !l.Under() && steps == a.steps*len(links) {
			steps, messages = 0, l.Leave(control.Leave{})
		}
		if err := tell(messages); err != nil {
			return err
		}
	}
	for _, link := range open {
		_ = link.Close()
	}
	all.Wait()
	return nil
}

// follow is every process's part.
func (a agreement) follow(rank int, link control.Link) error {
	f := control.NewFollower(rank, 1)
	done := make(chan error, 1)
	say := func(body control.Body) error {
		m, _ := f.Say(body)
		return link.Send(m)
	}
	do := func(m control.Message) error {
		body, err := f.Receive(m)
		if err != nil {
			return err
		}
		switch body.(type) {
		case control.Load:
			for step := range a.steps {
				part := control.Step{Step: step, StartS: float64(step), EndS: float64(step) + 0.9,
					Workers: []control.Did{{BusyS: 0.7, PeakBytes: 1 << 30, LiveBytes: 1 << 29}}}
				if err := say(part); err != nil {
					return err
				}
			}
			return say(control.Ended{Minibatches: a.steps, PeakBytes: []int64{1 << 30}})
		case control.Leave:
			defer func() { done <- nil }()
			return say(control.Left{})
		}
		return nil
	}
	link.Start(func(m control.Message, err error) {
		if err == nil {
			err = do(m)
		}
		if err != nil {
			select {
			case done <- err:
			default:
			}
		}
	})
	if err := say(control.Ready{}); err != nil {
		return err
	}
	err := <-done
	_ = link.Close()
	return err
}

// pipeline is the text of a Program of so many stages.
func pipeline(t *testing.T, stages, micros int) string {
	t.Helper()
	f, err := family.Lookup("1f1b")
	if err != nil {
		t.Fatal(err)
	}
	p, err := family.Generate(f.Name, schedule.Settings{Placement: f.Placement(stages, 1), MicroBatches: micros, Repeat: 1,
		Weights: schedule.Sync})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p.Text()
}

// Many ranks in one process meet, are sent a Program and say their parts of ten steps, in time and in little memory.
// make soak has 1,024 of them: every process is sent the whole Program, which has a list for each worker, so
// that what is sent grows with the square of their number.
func TestManyRanksAgree(t *testing.T) {
	size := 128
	if os.Getenv("MILLRACE_SOAK") != "" {
		size = 1024
	}
	r := agree(t, size)
	t.Logf("%d ranks met and agreed in %.3g s with %d KiB each; the program has %d KiB", size, r.Seconds, r.BytesEach>>10,
		r.ProgramBytes>>10)
	if r.Seconds > 10 || r.BytesEach > 1<<20 {
		t.Errorf("%d ranks took %.3g s and %d KiB each", size, r.Seconds, r.BytesEach>>10)
	}
}

// agreed is what the agreement of so many ranks took.
type agreed struct {
	Ranks        int     `json:"ranks"`
	Seconds      float64 `json:"seconds"`
	BytesEach    int     `json:"bytes_each"`    // in use at the peak, of heap and stacks
	ProgramBytes int     `json:"program_bytes"` // its text, which every rank is sent
	SentBytes    int     `json:"sent_bytes"`    // of it, to all others
}

func agree(t *testing.T, size int) agreed {
	a := agreement{pipeline(t, size, 8), 10}
	peak := watchMemory()
	began := time.Now()
	f := newFakeNet()
	var all sync.WaitGroup
	for r := range size {
		all.Go(func() {
			var err error
			var m *Meeting
			if c := rank(r, size); r == 0 {
				if m, err = Lead(t.Context(), f, c); err == nil {
					err = a.lead(m.Links)
				}
			} else if m, err = Join(t.Context(), f.dial, c); err == nil {
				err = a.follow(r, control.Over(m.Links[0]))
			}
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	all.Wait()
	return agreed{size, time.Since(began).Seconds(), int(peak()) / size, len(a.program), len(a.program) * (size - 1)}
}
