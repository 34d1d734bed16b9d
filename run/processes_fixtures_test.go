package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/pipe"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// worlds is a run in several processes, simulated within the test binary. The processes share only connections with
// lines of JSON for control, and carriers that copy bytes through pipes or over TCP.
type worlds struct {
	of       []int // the process of each worker
	idle     int   // number of further processes without a worker
	near     bool  // workers of one process hand memory over
	carriers func(workers int) ([]wire.Carrier, error)
	overTCP  bool                                              // control connections use TCP
	asks     int                                               // the process whose context ends when the run is to stop
	change   func(process int, c *Config)                      // changes the config of one process; may be nil
	links    func(process int, link control.Link)              // called with the leader's ends of links; may be nil
	cut      func(process int, link control.Link) control.Link // replaces the leader's ends of links; may be nil
}

// outcome has what all processes return.
type outcome struct {
	results []*Result
	errs    []error
}

// in assigns every worker to a process. Each process has at least one worker, and sometimes there is one more process
// without workers.
func in(g *rand.Rand, workers, processes int) worlds {
	of := make([]int, workers)
	for k := range of {
		of[k] = g.IntN(processes)
	}
	for p, k := range g.Perm(workers)[:processes] {
		of[k] = p
	}
	w := worlds{of: of, near: g.IntN(2) == 0, carriers: pipe.New}
	if g.IntN(2) == 0 {
		w.near, w.carriers, w.overTCP = true, tcp.New, true
	}
	switch g.IntN(4) {
	case 0:
		w.idle = 1
	case 1: // the leader has no workers
		for k := range of {
			of[k]++
		}
	}
	return w
}

// connect makes a connection between the leader and another process.
func (w worlds) connect(t testing.TB, process int) (leader, other io.ReadWriteCloser) {
	t.Helper()
	if !w.overTCP {
		return net.Pipe()
	}
	ends, token := [2]*tcp.Endpoint{}, []byte("what both of the processes know")
	for i, p := range []int{0, process} {
		e, err := tcp.Listen(t.Context(), tcp.Config{Token: token, Process: p})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		ends[i] = e
	}
	dialled, err := ends[1].Dial(t.Context(), ends[0].Address(), tcp.Control, 0)
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ends[0].Listener(tcp.Control).Accept()
	if err != nil {
		t.Fatal(err)
	}
	if from := accepted.(*tcp.Conn).From; from != process {
		t.Fatalf("process %d dials, and it is from process %d", process, from)
	}
	return accepted, dialled
}

func (w worlds) train(ctx context.Context, t testing.TB, c Config) outcome {
	t.Helper()
	n := slices.Max(w.of) + 1 + w.idle
	carriers, err := w.carriers(len(w.of))
	if err != nil {
		t.Fatal(err)
	}
	c.Wire.Carriers = func(int) ([]wire.Carrier, error) { return carriers, nil }
	places, devices := make([]process.Location, len(w.of)), make([]int, n)
	for k, p := range w.of {
		places[k] = process.Location{Process: p, Device: devices[p]}
		devices[p]++
	}
	leader, hosts := make([]control.Link, n), make([]string, n)
	for p := range hosts {
		hosts[p] = fmt.Sprintf("host%d", p)
	}
	out := outcome{results: make([]*Result, n), errs: make([]error, n)}
	var all sync.WaitGroup
	for p := n - 1; p >= 0; p-- {
		one := c
		if w.near {
			one.Wire.Carriers = func(workers int) ([]wire.Carrier, error) { return w.within(p, carriers) }
		}
		one.Machine.World = &process.World{Rank: p, Workers: places, Hosts: hosts, Links: leader}
		if p > 0 {
			x, y := w.connect(t, p)
			leader[p] = control.Over(x)
			one.Machine.World.Links = []control.Link{control.Over(y)}
			if w.cut != nil {
				leader[p] = w.cut(p, leader[p])
			}
			if w.links != nil {
				w.links(p, leader[p])
			}
			one.Hooks, one.Next, one.Begin = Hooks{}, nil, nil // only the leader has these
		}
		if w.change != nil {
			w.change(p, &one)
		}
		all.Go(func() {
			of := context.Background()
			if p == w.asks {
				of = ctx
			}
			out.results[p], out.errs[p] = Train(of, one)
		})
	}
	all.Wait()
	return out
}

// within makes the workers of a process hand memory over among themselves.
func (w worlds) within(process int, carriers []wire.Carrier) ([]wire.Carrier, error) {
	var mine []int
	for k, p := range w.of {
		if p == process {
			mine = append(mine, k)
		}
	}
	near, err := wire.InProcess(len(w.of))
	if err != nil {
		return nil, err
	}
	return wire.Split(near, carriers, mine)
}

// whole returns the leader's Result with the weights of all processes.
func (o outcome) whole(t testing.TB) *Result {
	t.Helper()
	if err := errors.Join(o.errs...); err != nil {
		t.Fatal(err)
	}
	res := o.results[0]
	for p, one := range o.results {
		for name, x := range one.Weights {
			if _, twice := res.Weights[name]; twice && p > 0 {
				t.Fatalf("two processes leave %s", name)
			}
			if res.Weights == nil {
				res.Weights = map[string]process.Weight{}
			}
			res.Weights[name] = x
		}
		if p > 0 && one.Leaked > 0 {
			t.Fatalf("process %d leaves %d handles open", p, one.Leaked)
		}
	}
	joinRows(res.Weights)
	return res
}

// did returns which instructions each worker executed in which step.
func did(tl *trace.Timeline) map[string]int {
	all := map[string]int{}
	for _, e := range tl.Events {
		all[fmt.Sprintf("%d %s %d", e.Worker, e.Instruction, e.Step)]++
	}
	return all
}

// sameRun compares the result of a run in several processes with the result of a run in one process.
func sameRun(alone, apart *Result) error {
	a, b := &alone.Timeline, &apart.Timeline
	switch {
	case alone.Steps != apart.Steps || alone.Loss != apart.Loss || apart.Leaked != 0:
		return fmt.Errorf("%d steps to a loss of %v, and %d to %v, with %d handles leaked", alone.Steps, alone.Loss,
			apart.Steps, apart.Loss, apart.Leaked)
	case !slices.Equal(a.Losses, b.Losses):
		return fmt.Errorf("losses\n%v, and\n%v", a.Losses, b.Losses)
	case !reflect.DeepEqual(a.Evaluations, b.Evaluations):
		return fmt.Errorf("evaluations\n%v, and\n%v", a.Evaluations, b.Evaluations)
	case !slices.Equal(a.PeakActivations, b.PeakActivations):
		return fmt.Errorf("%v micro-batches held, and %v", a.PeakActivations, b.PeakActivations)
	case len(a.Steps) != len(b.Steps) || len(b.Computed) != len(b.Steps) || len(b.PeakBytes) != b.Workers ||
		slices.Min(b.PeakBytes) <= 0:
		return fmt.Errorf("%d steps marked, and %d; busy of %d steps, peaks %v", len(a.Steps), len(b.Steps), len(b.Computed),
			b.PeakBytes)
	case !maps.Equal(did(a), did(b)):
		return fmt.Errorf("instructions\n%v, and\n%v", did(a), did(b))
	}
	if err := b.Validate(); err != nil {
		return err
	}
	return sameWeights(alone.Weights, apart.Weights)
}
