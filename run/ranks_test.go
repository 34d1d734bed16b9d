package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/launch/rendezvous"
	"github.com/millrace-ml/millrace/launch/setup"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/wire"
)

// ranks is a whole run of processes with one worker each, all simulated in the test's process: they meet, become ready,
// begin, and train. Only the network is missing: control messages and tensors go through memory.
type ranks struct {
	stages, replicas int
	micros           int // per step; a rank's memory is mostly copies of the Program's text, made while it is parsed
	hub              *fakeHub
	dialled          chan net.Conn
	closed           sync.Once
	said             atomic.Int64 // bytes that rank 0 sends and receives
}

// rankSteps is the number of steps of a run of ranks.
const rankSteps = 10

// readiness is what rank 0 sends all others before the run.
type readiness struct {
	Plan    *plan.Plan
	Workers []process.Location
}

// grown has the costs of a run of this many ranks.
type grown struct {
	Ranks        int     `json:"ranks"`
	Stages       int     `json:"stages"`
	MicroBatches int     `json:"micro_batches"` // per step of the Program
	Seconds      float64 `json:"seconds"`
	SlotsSeconds float64 `json:"slots_seconds"` // part of Seconds in which rank 0 computes the slots of an edge
	BytesEach    int     `json:"bytes_each"`    // peak of live heap and stacks, divided by the ranks
	Allocated    int     `json:"allocated"`     // bytes allocated in all
	ProgramBytes int     `json:"program_bytes"` // size of the Program's text, which is sent to every rank
	SaidBytes    int     `json:"said_bytes"`    // sent by rank 0 or to it
	Frames       int     `json:"frames"`        // frames sent between workers
	Edges        int     `json:"edges"`         // edges between workers
}

func (r *ranks) size() int { return r.stages * r.replicas }

// play runs all ranks.
func play(t *testing.T, stages, replicas, micros int) grown {
	t.Helper()
	r := &ranks{stages: stages, replicas: replicas, micros: micros, hub: newFakeHub(), dialled: make(chan net.Conn)}
	g := grown{Ranks: r.size(), Stages: stages, MicroBatches: micros}
	p, err := programs.Build(r.ready(t).Plan, nil, false, rankSteps)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := check.InFlight(p); err != nil {
		t.Fatal(err)
	}
	g.SlotsSeconds, g.ProgramBytes = time.Since(began).Seconds(), len(p.Text())
	peak := watchMemory()
	before := allocated()
	began = time.Now()
	errs := make([]error, r.size())
	var all sync.WaitGroup
	for rank := range errs {
		all.Go(func() { errs[rank] = r.rank(t, rank) })
	}
	all.Wait()
	g.Seconds, g.Allocated, g.BytesEach = time.Since(began).Seconds(), allocated()-before, int(peak())/g.Ranks
	g.SaidBytes, g.Frames, g.Edges = int(r.said.Load()), int(r.hub.frames.Load()), len(r.hub.lanes)
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d of %d: %v", rank, g.Ranks, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return g
}

// allocated returns how many bytes have been allocated since the start.
func allocated() int {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64())
}

// rank runs one process, from its meeting to its end.
func (r *ranks) rank(t *testing.T, rank int) error {
	c := rendezvous.Config{Wait: time.Minute, Own: rendezvous.Hello{Rank: rank, Size: r.size(), Run: "run",
		Host: fmt.Sprint("host", rank/8), PID: 100 + rank, Address: make([]byte, 100),
		Facts: []rendezvous.Fact{{Name: "build", Value: "b1", Must: true}, {Name: "data", Value: "d1", Must: true}}}}
	names := setup.Config{Name: func(rank int) string { return fmt.Sprint("rank ", rank) },
		Class: func(error) string { return "" }, Log: slog.New(slog.DiscardHandler)}
	if rank > 0 {
		m, err := rendezvous.Join(t.Context(), r.dial, c)
		if err != nil {
			return err
		}
		var own Config
		link, err := setup.Follow(control.Over(m.Links[0]), rank, map[string]setup.Handler{
			"ready": func(_ context.Context, with json.RawMessage) (any, error) {
				var k readiness
				err := json.Unmarshal(with, &k)
				own = r.config(t, rank, &k, m)
				return nil, err
			}}, names).Wait(t.Context())
		if err != nil {
			return err
		}
		own.Machine.World.Links = []control.Link{link}
		_, err = Train(t.Context(), own)
		return err
	}
	m, err := rendezvous.Lead(t.Context(), r, c)
	if err != nil {
		return err
	}
	links := make([]control.Link, r.size())
	for rank, conn := range m.Links {
		if conn != nil {
			links[rank] = control.Over(conn)
		}
	}
	l := setup.Lead(t.Context(), links, names)
	k := r.ready(t)
	if err := l.All("ready", k, nil); err != nil {
		return errors.Join(err, l.Dismiss(err))
	}
	own := r.config(t, rank, k, m)
	if own.Machine.World.Links, err = l.Begin(); err != nil {
		return err
	}
	res, err := Train(t.Context(), own)
	if err == nil && (res.Steps != rankSteps || len(res.Timeline.Losses) != rankSteps) {
		err = fmt.Errorf("%d steps and %d losses; want %d", res.Steps, len(res.Timeline.Losses), rankSteps)
	}
	return err
}

// ready returns a plan with this many stages, whose replicas split micro-batches of one row each.
func (r *ranks) ready(t *testing.T) *readiness {
	m := r.model(t)
	p := planOf(m, evenCuts(len(m.Layers), r.stages), r.replicas, r.micros, "1f1b")
	p.Replication = "split"
	k := &readiness{Plan: p, Workers: make([]process.Location, r.size())}
	for s := range p.Stages {
		p.Stages[s].Devices = nil
		for i := range r.replicas {
			p.Stages[s].Devices = append(p.Stages[s].Devices, s*r.replicas+i)
		}
	}
	for w := range k.Workers {
		k.Workers[w] = process.Location{Process: w}
	}
	return k
}

func (r *ranks) model(t *testing.T) *model.Model {
	return build(t, "mlp", map[string]any{"inputs": 4, "hidden": slices.Repeat([]int{4}, r.stages), "classes": 4})
}

// config returns the config of one process, as the process itself makes it.
func (r *ranks) config(t *testing.T, rank int, k *readiness, m *rendezvous.Meeting) Config {
	c := basic(t, ref.New(), r.model(t), k.Plan, 4, rankSteps)
	c.Keep.Weights = false
	c.Machine.World = &process.World{Rank: rank, Workers: k.Workers}
	for _, at := range m.Places {
		c.Machine.World.Hosts = append(c.Machine.World.Hosts, at.Host)
	}
	c.Wire.Carriers = func(workers int) ([]wire.Carrier, error) {
		all := make([]wire.Carrier, workers)
		for worker, at := range k.Workers {
			if all[worker] = (elsewhere{rank: worker}); at.Process == rank {
				all[worker] = &fakeCarrier{elsewhere: elsewhere{rank: worker}, hub: r.hub}
			}
		}
		return all, nil
	}
	return c
}

// Accept implements the Listener of rank 0.
func (r *ranks) Accept() (net.Conn, error) {
	c, open := <-r.dialled
	if !open {
		return nil, net.ErrClosed
	}
	return counted{c, &r.said}, nil
}

func (r *ranks) Addr() net.Addr { return &net.UnixAddr{Name: "fake", Net: "unix"} }

// Close implements the Listener of rank 0, after all ranks have connected.
func (r *ranks) Close() error {
	r.closed.Do(func() { close(r.dialled) })
	return nil
}

func (r *ranks) dial(ctx context.Context) (net.Conn, error) {
	own, other := net.Pipe()
	select {
	case r.dialled <- other:
		return own, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// counted is a connection whose bytes are counted.
type counted struct {
	net.Conn
	bytes *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.bytes.Add(int64(n))
	return n, err
}

// With twice as many stages or micro-batches, costs about double. Each replica of a stage communicates with all others.
// So with twice as many replicas there are up to four times as many edges and frames. With twice as many ranks, rank 0
// sends and receives up to three times as much, because each rank gets the Program and the places of all.
func TestRanksGrowAsTheyShould(t *testing.T) {
	play(t, 2, 4, 2) // allocates memory before the measurements
	small, deep, wide, long := play(t, 8, 4, 2), play(t, 16, 4, 2), play(t, 8, 8, 2), play(t, 8, 4, 4)
	for what, c := range map[string]struct {
		of   func(grown) int
		most float64 // maximal exponent in the number of ranks
		wide float64 // maximal exponent in the number of replicas of a stage: each communicates with all others
	}{
		"edges":           {func(g grown) int { return g.Edges }, 1.1, 2.1},
		"frames":          {func(g grown) int { return g.Frames }, 1.1, 2.1},
		"said":            {func(g grown) int { return g.SaidBytes }, 1.6, 1.6},
		"bytes allocated": {func(g grown) int { return g.Allocated }, 1.25, 1.33},
	} {
		before := float64(c.of(small))
		if power := math.Log2(float64(c.of(deep)) / before); power > c.most {
			t.Errorf("twice as many stages: %s from %v with the power %.2f", what, before, power)
		}
		if power := math.Log2(float64(c.of(wide)) / before); power > c.wide {
			t.Errorf("twice as many replicas: %s from %v with the power %.2f", what, before, power)
		}
		if power := math.Log2(float64(c.of(long)) / before); power > 1.1 {
			t.Errorf("twice as many micro-batches: %s from %v with the power %.2f", what, before, power)
		}
	}
	t.Logf("%+v\n%+v\n%+v\n%+v", small, deep, wide, long)
}

// 1,024 ranks run in limited time and memory, with the smallest Program: one micro-batch per step.
func TestManyRanks(t *testing.T) {
	if os.Getenv("MILLRACE_SOAK") == "" {
		t.Skip("make soak plays 1,024 ranks")
	}
	play(t, 4, 4, 1) // allocates memory before the measurement
	inTime(t, play(t, 64, 16, 1))
}

// inTime fails if a run took too much time or memory.
func inTime(t *testing.T, g grown) {
	t.Helper()
	t.Logf("%+v", g)
	if g.Seconds > 10 || g.BytesEach > 1<<20 {
		t.Errorf("%d ranks took %.3g s and %d KiB each", g.Ranks, g.Seconds, g.BytesEach>>10)
	}
}

// steeper is how much an exponent may exceed 1 without being reported. It leaves room because times vary.
const steeper = 0.2

// grownRanks is the content of the file that TestRanksGrow writes.
type grownRanks struct {
	record.Head
	Deeper  []grown  `json:"deeper"` // runs with ever more stages of 16 replicas
	Wider   []grown  `json:"wider"`  // runs with ever more replicas of 4 stages
	Longer  []grown  `json:"longer"` // runs of 16 stages of 16 replicas, with ever more micro-batches per step
	Steeper []string `json:"faster_than_linear"`
}

func (*grownRanks) Kind() string   { return "ranks" }
func (*grownRanks) Recount() error { return nil } // each number is one measurement

// Runs of up to 1,024 ranks are measured from their meeting through the Load of a Program to the end of ten steps. The
// file lists costs that grow faster than the number of ranks. MILLRACE_RANKS is the absolute path of the file to write:
// MILLRACE_RANKS=.../lab/results/ranks.json go test ./run -run RanksGrow$
func TestRanksGrow(t *testing.T) {
	path := os.Getenv("MILLRACE_RANKS")
	if path == "" {
		t.Skip("MILLRACE_RANKS names no file to write")
	}
	found := &grownRanks{Head: record.Begin("ranks",
		"Ranks of one process meet, are ready, load a Program and train ten steps, over fake carriers")}
	found.Command = "MILLRACE_RANKS=" + path + " go test ./run -run 'RanksGrow$'"
	play(t, 4, 4, 1) // allocates memory before the measurements
	for _, stages := range []int{8, 16, 32, 64} {
		found.Deeper = append(found.Deeper, play(t, stages, 16, 1))
	}
	for _, replicas := range []int{16, 32, 64} {
		found.Wider = append(found.Wider, play(t, 4, replicas, 1))
	}
	for _, micros := range []int{1, 2, 4, 8} {
		found.Longer = append(found.Longer, play(t, 16, 16, micros))
	}
	for name, rows := range map[string][]grown{"stages": found.Deeper, "replicas": found.Wider,
		"micro-batches": found.Longer} {
		a, b := rows[len(rows)-2], rows[len(rows)-1]
		grows := func(what string, before, after float64) {
			if power := math.Log2(after / before); power > 1+steeper {
				found.Steeper = append(found.Steeper, fmt.Sprintf("more %s: %s, with the power %.1f of them", name, what,
					power))
			}
		}
		grows("time", a.Seconds, b.Seconds)
		grows("rank 0's search for the slots of an edge", a.SlotsSeconds, b.SlotsSeconds)
		grows("memory of all", float64(a.BytesEach*a.Ranks), float64(b.BytesEach*b.Ranks))
		grows("memory allocated by all, over the time", float64(a.Allocated), float64(b.Allocated))
		grows("a Program's text", float64(a.ProgramBytes), float64(b.ProgramBytes))
		grows("what rank 0 says: the whole Program, and where all are, to each", float64(a.SaidBytes), float64(b.SaidBytes))
		grows("frames between workers", float64(a.Frames), float64(b.Frames))
		grows("edges between workers", float64(a.Edges), float64(b.Edges))
	}
	slices.Sort(found.Steeper)
	found.End()
	if err := record.Write(path, found); err != nil {
		t.Fatal(err)
	}
	t.Logf("%q", found.Steeper)
	inTime(t, found.Deeper[len(found.Deeper)-1])
}
