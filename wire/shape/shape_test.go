package shape_test

import (
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/shape"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shaped(t *testing.T, n int, links func(from, to int) shape.Link) []wire.Carrier {
	t.Helper()
	all, err := wire.InProcess(n)
	if err != nil {
		t.Fatal(err)
	}
	if all, err = shape.New(all, links); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestALinkTakesItsTime: on the clock of a synctest bubble a message takes latency + bytes / bandwidth, to the
// nanosecond. Transfers on one link follow each other while their latencies overlap.
func TestALinkTakesItsTime(t *testing.T) {
	link := func(from, to int) shape.Link { return shape.Link{Latency: 5 * time.Millisecond, BytesPerSecond: 1000} }
	for _, c := range []struct {
		name   string
		links  func(from, to int) shape.Link
		sends  [][3]int // from, to, bytes
		arrive []time.Duration
	}{
		{"one", link, [][3]int{{0, 1, 10}}, []time.Duration{15}},
		{"one after the other", link, [][3]int{{0, 1, 10}, {0, 1, 20}, {0, 1, 0}}, []time.Duration{15, 35, 35}},
		{"each direction and pair apart", link, [][3]int{{0, 1, 10}, {1, 0, 20}, {2, 1, 30}}, []time.Duration{15, 25, 35}},
		{"to itself at once", link, [][3]int{{1, 1, 1000}}, []time.Duration{0}},
		{"one card for all", func(from, to int) shape.Link {
			return shape.Link{Latency: 5 * time.Millisecond, BytesPerSecond: 1000, Shared: []int{1}}
		},
			[][3]int{{0, 1, 10}, {1, 0, 20}, {2, 1, 30}}, []time.Duration{15, 35, 65}},
		{"two cards on one way", func(from, to int) shape.Link {
			return shape.Link{Latency: 5 * time.Millisecond, BytesPerSecond: 1000, Shared: [][]int{{1, 2}, {1}, {2}}[from]}
		}, [][3]int{{0, 1, 10}, {1, 0, 20}, {2, 1, 30}, {0, 1, 10}}, []time.Duration{15, 35, 45, 55}},
		{"latencies differ on a shared link", func(from, to int) shape.Link {
			return shape.Link{Latency: time.Duration(30-10*from) * time.Millisecond, BytesPerSecond: 1000, Shared: []int{1}}
		}, [][3]int{{0, 1, 10}, {2, 1, 5}}, []time.Duration{40, 25}},
		{"no shape at all", func(from, to int) shape.Link { return shape.Link{} }, [][3]int{{0, 1, 1000}},
			[]time.Duration{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				took := make([]time.Duration, len(c.sends))
				came := make(chan struct{})
				ports, err := wire.NewPorts(shaped(t, 3, c.links), []int{0, 1, 2}, func(int) wire.Config {
					return wire.Config{Arrived: func(a wire.Arrival) {
						took[a.Key] = time.Since(start)
						go func() { came <- struct{}{} }()
					}}
				})
				if err != nil {
					t.Fatal(err)
				}
				defer ports.Close()
				var table wire.Table
				var edges []wire.Edge
				for _, x := range c.sends {
					e, err := table.Edge(wire.Name{From: x[0], To: x[1]}, 0)
					if err != nil {
						t.Fatal(err)
					}
					edges = append(edges, e)
				}
				ports.Begin(1, table.Edges())()
				for i, x := range c.sends {
					b := wire.Buffer{DType: wire.U8, Shape: []int64{int64(x[2])}, Data: make([]byte, x[2])}
					if err := ports.Port(x[0]).Send(edges[i], uint64(i), 0, []wire.Buffer{b}, nil); err != nil {
						t.Fatal(err)
					}
				}
				for range c.sends {
					<-came
				}
				for i, want := range c.arrive {
					if took[i] != want*time.Millisecond {
						t.Errorf("transfer %d took %v; want %v", i, took[i], want*time.Millisecond)
					}
				}
			})
		})
	}
}

func TestWhatIsOnTheWayEndsWithTheCarrier(t *testing.T) {
	for name, end := range map[string]func(c wire.Carrier){
		"close": func(c wire.Carrier) { c.Close() }, "failure": func(c wire.Carrier) { c.Fail(1, wire.ErrClosed) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := shaped(t, 2, func(from, to int) shape.Link { return shape.Link{Latency: time.Hour} })
				said := 0
				done := func(err error) {
					if said++; !errors.Is(err, wire.ErrClosed) {
						t.Error(err)
					}
				}
				e := wire.Edge{From: 0, To: 1}
				all[0].Send(1, e, 0, []*wire.Buffer{{DType: wire.U8, Shape: []int64{0}}}, done)
				synctest.Wait()
				end(all[0])
				all[0].Send(1, e, 1, []*wire.Buffer{{DType: wire.U8, Shape: []int64{0}}}, done)
				if said != 2 {
					t.Errorf("%d of 2 sends ended", said)
				}
				for _, c := range all {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// TestASlowLinkIsNoFastOne: an extremely slow link keeps a frame for ever. A time that overflows must not count as
// zero.
func TestASlowLinkIsNoFastOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := shaped(t, 2, func(from, to int) shape.Link { return shape.Link{BytesPerSecond: 1e-300} })
		said := make(chan error, 2)
		e, b := wire.Edge{From: 0, To: 1}, wire.Buffer{DType: wire.U8, Shape: []int64{8}, Data: make([]byte, 8)}
		room := b
		all[1].Recv(e, 0, &room, func(err error) { said <- err })
		all[0].Send(1, e, 0, []*wire.Buffer{&b}, func(err error) { said <- err })
		time.Sleep(1000 * time.Hour)
		if len(said) > 0 {
			t.Errorf("a frame is there: %v", <-said)
		}
		for _, c := range all {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestASendBesideCloseEnds: a send that is posted during Close gets its call of `done`, and no goroutine is left
// behind.
func TestASendBesideCloseEnds(t *testing.T) {
	for range 100 {
		all := shaped(t, 2, func(from, to int) shape.Link { return shape.Link{Latency: time.Hour} })
		var sends, ended sync.WaitGroup
		begun := make(chan struct{}, 2)
		for edge := range uint32(2) {
			sends.Go(func() {
				for n := range uint32(200) {
					if n == 20 {
						begun <- struct{}{}
					}
					ended.Add(1)
					all[0].Send(1, wire.Edge{ID: edge, From: 0, To: 1}, n, []*wire.Buffer{{DType: wire.U8, Shape: []int64{0}}},
						func(error) { ended.Done() })
				}
			})
		}
		<-begun
		for _, c := range all {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		sends.Wait()
		ended.Wait()
	}
}

func TestLinksAreChecked(t *testing.T) {
	for _, bad := range []shape.Link{{Latency: -1}, {BytesPerSecond: -1}, {BytesPerSecond: math.NaN()}} {
		all, err := wire.InProcess(2)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := shape.New(all, func(from, to int) shape.Link { return bad }); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}
