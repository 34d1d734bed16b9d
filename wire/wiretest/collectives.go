package wiretest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/collective"
)

// SumInto adds little-endian floats of src to dst.
func SumInto(dst, src []byte, dtype wire.DType) error {
	le := binary.LittleEndian
	switch dtype {
	case wire.F32:
		for i := 0; i < len(dst); i += 4 {
			a, b := math.Float32frombits(le.Uint32(dst[i:])), math.Float32frombits(le.Uint32(src[i:]))
			le.PutUint32(dst[i:], math.Float32bits(a+b))
		}
	case wire.F64:
		for i := 0; i < len(dst); i += 8 {
			a, b := math.Float64frombits(le.Uint64(dst[i:])), math.Float64frombits(le.Uint64(src[i:]))
			le.PutUint64(dst[i:], math.Float64bits(a+b))
		}
	default:
		return fmt.Errorf("no sum of %v", dtype)
	}
	return nil
}

// vectors returns floats whose sum depends on the order of addition.
func vectors(g *rand.Rand, sizes []int, dtypes []wire.DType) []wire.Buffer {
	all := make([]wire.Buffer, len(sizes))
	for i, n := range sizes {
		b := wire.Buffer{DType: dtypes[i], Shape: []int64{int64(n)}}
		for range n {
			x := g.NormFloat64() * math.Pow(10, float64(g.IntN(8)))
			if b.DType == wire.F32 {
				b.Data = binary.LittleEndian.AppendUint32(b.Data, math.Float32bits(float32(x)))
			} else {
				b.Data = binary.LittleEndian.AppendUint64(b.Data, math.Float64bits(x))
			}
		}
		all[i] = b
	}
	return all
}

// together runs f for every member of a group, all at the same time. If f fails for a member, all ports are told that
// the member's worker has failed.
func together(w *world, groups []*collective.Group, f func(g *collective.Group) error) error {
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for k, g := range groups {
		all.Go(func() {
			if errs[k] = f(g); errs[k] != nil {
				w.Fail(g.Port.Rank(), errs[k])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func groupsOf(w *world, ranks []int, limited bool) []*collective.Group {
	var groups []*collective.Group
	everybody := func(int) bool { return true }
	if err := collective.NameEdges(&w.table, 5, ranks, everybody, limited); err != nil {
		w.t.Fatal(err)
	}
	for me, rank := range ranks {
		g, err := collective.NewGroup(&w.table, w.Port(rank), 5, ranks, me)
		if err != nil {
			w.t.Fatal(err)
		}
		groups = append(groups, g)
	}
	return groups
}

// collectives runs several collectives, one after the other. It compares each sum with the sum that a loop over the
// members computes in their order. It also checks that no message arrives before its receiver has joined.
func collectives(t *testing.T, open Maker) {
	for seed := range uint64(8) {
		g := rand.New(rand.NewPCG(seed, 3))
		workers := 1 + g.IntN(4)
		ranks := g.Perm(workers)[:1+g.IntN(workers)]
		if g.IntN(2) == 0 {
			ranks = append(ranks, ranks[0]) // one worker is a member twice
		}
		w := newWorld(t, open, workers, 1)
		groups := groupsOf(w, ranks, seed%2 == 0)
		w.Begin(1, w.table.Edges())()
		for range 3 {
			var sizes []int
			var dtypes []wire.DType
			for range g.IntN(6) {
				sizes, dtypes = append(sizes, g.IntN(20)), append(dtypes, []wire.DType{wire.F32, wire.F64}[g.IntN(2)])
			}
			mine := vectorsOf(g, len(ranks), sizes, dtypes)
			var want [][]byte
			for i := range sizes {
				sum := bytes.Clone(mine[0][i].Data)
				for k := 1; k < len(ranks); k++ {
					if err := SumInto(sum, mine[k][i].Data, dtypes[i]); err != nil {
						t.Fatal(err)
					}
				}
				want = append(want, sum)
			}
			if err := together(w, groups, func(g *collective.Group) error {
				return g.AllReduce(t.Context(), mine[g.Me], SumInto)
			}); err != nil {
				t.Fatal(err)
			}
			for k := range mine {
				for i := range sizes {
					if !bytes.Equal(mine[k][i].Data, want[i]) {
						t.Fatalf("seed %d: member %d, vector %d: %x; want %x", seed, k, i, mine[k][i].Data, want[i])
					}
				}
			}
		}
		if err := together(w, groups, exchanges); err != nil {
			t.Fatal(err)
		}
		w.close()
	}
	collectiveFails(t, open)
	collectiveWaits(t, open)
}

// exchanges runs several rounds of Exchange as one member. In each round the member sends more bytes than before,
// always from the same memory. It checks what the other members have sent.
func exchanges(g *collective.Group) error {
	const rounds, more = 3, 70_000
	own := make([]byte, rounds*more)
	for round := range rounds {
		of := func(member int) []byte { return random(uint64(member+10*round), 1+round*more) }
		all, err := g.Exchange(context.Background(), own[:copy(own, of(g.Me))])
		if err != nil {
			return err
		}
		for k, got := range all {
			if k != g.Me && !bytes.Equal(got, of(k)) {
				return fmt.Errorf("member %d has %d other bytes of member %d", g.Me, len(got), k)
			}
		}
	}
	return nil
}

func vectorsOf(g *rand.Rand, members int, sizes []int, dtypes []wire.DType) [][]wire.Buffer {
	mine := make([][]wire.Buffer, members)
	for k := range mine {
		mine[k] = vectors(g, sizes, dtypes)
	}
	return mine
}

// collectiveFails checks that a member that fails ends the collective for all members.
func collectiveFails(t *testing.T, open Maker) {
	w := newWorld(t, open, 3, 1)
	groups := groupsOf(w, []int{0, 1, 2}, true)
	w.Begin(1, w.table.Edges())()
	why := errors.New("this member is ill")
	mine := vectorsOf(rand.New(rand.NewPCG(1, 1)), 3, []int{64}, []wire.DType{wire.F32})
	err := together(w, groups, func(g *collective.Group) error {
		if g.Me == 2 {
			return why
		}
		return g.AllReduce(t.Context(), mine[g.Me], SumInto)
	})
	var peer *wire.PeerError
	if !errors.Is(err, why) || !errors.As(err, &peer) || peer.Rank != 2 {
		t.Error(err)
	}
	w.close()
}

// collectiveWaits checks that messages of a collective wait at their senders until the receiver has joined.
func collectiveWaits(t *testing.T, open Maker) {
	w := newWorld(t, open, 2, 1)
	groups := groupsOf(w, []int{0, 1}, true)
	w.Begin(1, w.table.Edges())()
	mine := vectorsOf(rand.New(rand.NewPCG(1, 1)), 2, []int{64}, []wire.DType{wire.F32})
	first := signal(func() {
		if err := groups[0].AllReduce(t.Context(), mine[0], SumInto); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-first:
		t.Fatal("a sum without its other member")
	case <-time.After(10 * time.Millisecond):
	}
	if n := w.Port(1).Waiting(groups[1].From[0]); n != 0 {
		t.Errorf("%d messages lie with a member that has not joined", n)
	}
	if err := groups[1].AllReduce(t.Context(), mine[1], SumInto); err != nil {
		t.Error(err)
	}
	wait(t, first, "the first member")
	w.close()
}
