//go:build cgo

package torch_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/torch"
)

// glooGroup makes a group in this process.
func glooGroup(t *testing.T, size int) []*torch.Gloo {
	t.Helper()
	e := load(t)
	if err := e.CanGloo(); err != nil {
		t.Skip(err)
	}
	var all sync.WaitGroup
	said, members := make([][]chan []byte, size), make([]*torch.Gloo, size) // said[from][to]
	for k := range said {
		for range size {
			said[k] = append(said[k], make(chan []byte, 8))
		}
	}
	for rank := range size {
		all.Go(func() {
			exchange := func(_ context.Context, own []byte) (others [][]byte, err error) {
				for k := range said {
					said[rank][k] <- own
				}
				for k := range said {
					if other := <-said[k][rank]; k != rank {
						others = append(others, other)
					}
				}
				return others, nil
			}
			g, err := e.NewGloo(t.Context(), "127.0.0.1", rank, size, exchange)
			if err != nil {
				t.Error(err)
				return
			}
			members[rank] = g
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return members
}

// together runs f for all members and returns their errors.
func together(members []*torch.Gloo, f func(rank int, g *torch.Gloo) error) []error {
	errs := make([]error, len(members))
	var all sync.WaitGroup
	for rank, g := range members {
		all.Go(func() { errs[rank] = f(rank, g) })
	}
	all.Wait()
	return errs
}

// Sums over two to four members have the same bits at all members. They differ from sums in float64 by at most
// SumTolerance of the sum of absolute values.
func TestGlooSums(t *testing.T) {
	for _, size := range []int{2, 3, 4} {
		members := glooGroup(t, size)
		for _, lengths := range [][]int{{1}, {5, 0, 1000}, {300_000}, {1, 1, 1}} {
			data := make([][][]float32, size)
			for rank := range data {
				g := rand.New(rand.NewPCG(uint64(rank), 7))
				for _, n := range lengths {
					v := make([]float32, n)
					for i := range v {
						v[i] = float32(g.NormFloat64() * math.Pow(10, float64(g.IntN(6))))
					}
					data[rank] = append(data[rank], v)
				}
			}
			exact, magnitude := make([][]float64, len(lengths)), make([][]float64, len(lengths))
			for k, n := range lengths {
				exact[k], magnitude[k] = make([]float64, n), make([]float64, n)
				for rank := range data {
					for i, x := range data[rank][k] {
						exact[k][i] += float64(x)
						magnitude[k][i] += math.Abs(float64(x))
					}
				}
			}
			errs := together(members, func(rank int, g *torch.Gloo) error {
				var vectors [][]byte
				for _, v := range data[rank] {
					vectors = append(vectors, engine.Bytes(v))
				}
				return g.Sum(vectors, engine.Float32)
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			for k := range lengths {
				for i, x := range data[0][k] {
					if off := math.Abs(float64(x) - exact[k][i]); off > torch.SumTolerance(size)*magnitude[k][i] {
						t.Fatalf("%d members, vector %d: %g is off by %g", size, k, exact[k][i], off)
					}
				}
				for rank := range data {
					if !slices.Equal(data[rank][k], data[0][k]) {
						t.Fatalf("members 0 and %d have other sums", rank)
					}
				}
			}
		}
		for _, g := range members {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// If one member does not join a sum, the other one waits until the group is ended. If one member leaves the group, the
// sum of the other one ends by itself.
func TestGlooEnds(t *testing.T) {
	why := errors.New("its host burns")
	for name, leave := range map[string]func(members []*torch.Gloo){
		"told": func(members []*torch.Gloo) { members[0].End(why) },
		"left": func(members []*torch.Gloo) { members[1].End(why) },
	} {
		members := glooGroup(t, 2)
		vector := make([]float32, 1000)
		said := make(chan error, 1)
		go func() { said <- members[0].Sum([][]byte{engine.Bytes(vector)}, engine.Float32) }()
		select {
		case err := <-said:
			t.Fatalf("%s: a sum without its other member: %v", name, err)
		case <-time.After(20 * time.Millisecond):
		}
		leave(members)
		select {
		case err := <-said:
			if err == nil || name == "told" && !errors.Is(err, why) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: it waits on", name)
		}
		if err := members[0].Sum([][]byte{engine.Bytes(vector)}, engine.Float32); err == nil {
			t.Errorf("%s: it goes on", name)
		}
		for _, g := range members {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Here one of two members never finishes the meeting. When the context ends, this member returns the context's cause.
// The other member returns the cause too, unless it has already received all that it needs.
func TestGlooMeetingEnds(t *testing.T) {
	e := load(t)
	if err := e.CanGloo(); err != nil {
		t.Skip(err)
	}
	waited := 0
	// The kernel chooses the ports, and the ports decide which member connects to the other. So it can happen that
	// nobody has to wait in the first two meetings. Then further meetings are tried.
	for meeting := 0; meeting < 2 || waited == 0 && meeting < 60; meeting++ {
		absent := meeting % 2
		ctx, cancel := context.WithCancelCause(t.Context())
		why, said := errors.New("its host burns"), [2]chan []byte{make(chan []byte, 8), make(chan []byte, 8)}
		exchange := func(of int, hears int) func(context.Context, []byte) ([][]byte, error) {
			return func(ctx context.Context, own []byte) ([][]byte, error) {
				said[of] <- own
				if hears--; hears >= 0 {
					select {
					case other := <-said[1-of]:
						return [][]byte{other}, nil
					case <-ctx.Done():
					}
				}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
		}
		var all sync.WaitGroup
		all.Go(func() { // sends its host and then its address, but never receives the other's address
			if _, err := e.NewGloo(ctx, "127.0.0.1", absent, 2, exchange(absent, 1)); !errors.Is(err, why) {
				t.Errorf("member %d, which hears nothing: %v", absent, err)
			}
		})
		began := time.Now()
		time.AfterFunc(200*time.Millisecond, func() { cancel(why) })
		g, err := e.NewGloo(ctx, "127.0.0.1", 1-absent, 2, exchange(1-absent, 2))
		switch {
		case err == nil:
			err = g.Close()
			if err != nil {
				t.Error(err)
			}
		case errors.Is(err, why):
			waited++
		default:
			t.Errorf("member %d: %v", 1-absent, err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("member %d: it took %v", 1-absent, took)
		}
		cancel(why)
		all.Wait()
	}
	if waited == 0 {
		t.Error("nobody waited")
	}
}

func TestGlooRefuses(t *testing.T) {
	e := load(t)
	if err := e.CanGloo(); err != nil {
		t.Skip(err)
	}
	why := errors.New("nobody answers")
	none := func(context.Context, []byte) ([][]byte, error) { return nil, why }
	if _, err := e.NewGloo(t.Context(), "127.0.0.1", 0, 2, none); !errors.Is(err, why) {
		t.Error(err)
	}
	_, err := e.NewGloo(t.Context(), "192.0.2.1", 0, 2, none)
	if err == nil || !strings.Contains(err.Error(), "192.0.2.1") {
		t.Error(err)
	}
}
