package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/wire/pipe"
)

// meetings are groups that sum in rank order, in place of a library.
type meetings struct {
	engine engine.Engine

	mu   sync.Mutex
	all  map[string]*meeting
	sums int
}

// meeting is a group of members; the last to arrive sums for all.
type meeting struct {
	of      *meetings
	changed *sync.Cond
	given   [][][]byte // by member
	here    int
	turn    int
}

// attendance is a member of a meeting.
type attendance struct {
	m    *meeting
	rank int
	err  error
}

func (ms *meetings) meet(ctx context.Context, rank, size int,
	exchange func(context.Context, []byte) ([][]byte, error)) (process.Summer, error) {
	name := fmt.Sprintf("%d of %d, %d", rank, size, rand.Uint64())
	others, err := exchange(ctx, []byte(name))
	if err != nil {
		return nil, err
	}
	if len(others) != size-1 {
		return nil, fmt.Errorf("%d others of %d", len(others), size)
	}
	if rank > 0 {
		name = string(others[0])
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.all[name]
	if m == nil {
		m = &meeting{of: ms, changed: sync.NewCond(&ms.mu), given: make([][][]byte, size)}
		ms.all[name] = m
	}
	return &attendance{m: m, rank: rank}, nil
}

func (a *attendance) Sum(vectors [][]byte, dtype engine.DType) error {
	m := a.m
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	m.given[a.rank] = vectors
	turn := m.turn
	if m.here++; m.here < len(m.given) {
		for m.turn == turn && a.err == nil {
			m.changed.Wait()
		}
		return a.err
	}
	for i := range vectors {
		for _, other := range m.given[1:] {
			if err := m.of.engine.SumInto(m.given[0][i], other[i], dtype); err != nil {
				return err
			}
		}
		for _, other := range m.given[1:] {
			copy(other[i], m.given[0][i])
		}
	}
	m.of.sums++
	m.here, m.turn = 0, m.turn+1
	m.changed.Broadcast()
	return nil
}

func (a *attendance) End(err error) {
	a.m.of.mu.Lock()
	defer a.m.of.mu.Unlock()
	if a.err == nil {
		a.err = err
	}
	a.m.changed.Broadcast()
}

func (a *attendance) Close() error { return nil }

// A library that sums gradients over replicas gets all gradients, in one process and in several. If the library sums in
// rank order, the run ends with the same bits as without it.
func TestAnotherLibrarySums(t *testing.T) {
	all, tried := everyFamily(t, 3), 0
	for i, f := range all {
		replicas := 0
		for _, s := range f.config.Plan.Stages {
			replicas = max(replicas, len(s.Devices))
		}
		if workers := len(f.config.Plan.Devices()); replicas < 2 || workers < 3 || tried == 6 {
			continue
		}
		tried++
		c := f.config
		want := train(t, c)
		ms := &meetings{engine: c.Engine, all: map[string]*meeting{}}
		c.Wire.Meet = ms.meet
		if err := sameWeights(want.Weights, train(t, c).Weights); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		w := in(rand.New(rand.NewPCG(uint64(i), 83)), len(c.Plan.Devices()), 2)
		if err := sameWeights(want.Weights, w.train(t.Context(), t, c).whole(t).Weights); err != nil {
			t.Errorf("%s in processes %v: %v", f.name, w.of, err)
		}
		if ms.sums == 0 {
			t.Errorf("%s: nobody was asked", f.name)
		}
	}
	if tried == 0 {
		t.Error("no family has replicas")
	}
}

// torn is an attendance whose sums fail once a member's process is lost, as with a library that has its own
// connections.
type torn struct {
	process.Summer
	lost <-chan struct{}
}

func (a torn) Sum(vectors [][]byte, dtype engine.DType) error {
	said := make(chan error, 1)
	go func() { said <- a.Summer.Sum(vectors, dtype) }()
	select {
	case <-a.lost:
		return errors.New("Gloo: Connection closed by peer")
	case err := <-said:
		return err
	}
}

// If a process is lost while a library sums, the first error is that the sum fails. Still, every process reports which
// process was lost.
func TestALibraryNoticesALossFirst(t *testing.T) {
	for range 3 {
		c, lost := small(t, 3, 1000), make(chan struct{})
		c.Plan = replicated(c.Plan, len(c.Model.Layers), 3)
		ms := &meetings{engine: c.Engine, all: map[string]*meeting{}}
		c.Wire.Meet = func(ctx context.Context, rank, size int,
			exchange func(context.Context, []byte) ([][]byte, error)) (process.Summer, error) {
			s, err := ms.meet(ctx, rank, size, exchange)
			return torn{s, lost}, err
		}
		w := worlds{of: []int{0, 1, 2}, carriers: pipe.New}
		cut := make(chan control.Link, 2)
		w.links = func(p int, l control.Link) { cut <- l }
		c.Hooks.OnStep = func(s StepReport) {
			if s.Step == 3 {
				close(lost)
				time.AfterFunc(300*time.Millisecond, func() { (<-cut).Close() }) // the first link leads to process 2
			}
		}
		for p, err := range w.train(t.Context(), t, c).errs {
			var gone *control.LostError
			if !errors.As(err, &gone) || gone.Process != []int{2, 2, 0}[p] {
				t.Errorf("process %d: %v", p, err)
			}
		}
	}
}

// If a library cannot sum though no process is lost, the error names the workers of the group.
func TestALibraryThatCannotSum(t *testing.T) {
	c := small(t, 3, 4)
	c.Plan = replicated(c.Plan, len(c.Model.Layers), 3)
	c.Wire.Meet = func(context.Context, int, int, func(context.Context, []byte) ([][]byte, error)) (
		process.Summer, error) {
		return nil, errors.New("it has no port")
	}
	w := worlds{of: []int{0, 1, 1}, carriers: pipe.New}
	for p, err := range w.train(t.Context(), t, c).errs {
		var gone *control.LostError
		if err == nil || errors.As(err, &gone) || !strings.Contains(err.Error(), "with workers [0 1 2]: it has no port") {
			t.Errorf("process %d: %v", p, err)
		}
	}
}
