package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// sumInto is the sum of an engine, in Go.
func sumInto(dst, src []byte, dtype string) error {
	switch dtype {
	case "F32":
		for i := 0; i < len(dst); i += 4 {
			x := math.Float32frombits(binary.NativeEndian.Uint32(dst[i:])) + math.Float32frombits(binary.NativeEndian.Uint32(src[i:]))
			binary.NativeEndian.PutUint32(dst[i:], math.Float32bits(x))
		}
	case "F64":
		for i := 0; i < len(dst); i += 8 {
			x := math.Float64frombits(binary.NativeEndian.Uint64(dst[i:])) + math.Float64frombits(binary.NativeEndian.Uint64(src[i:]))
			binary.NativeEndian.PutUint64(dst[i:], math.Float64bits(x))
		}
	default:
		return fmt.Errorf("no sum of %s", dtype)
	}
	return nil
}

// randomVectors are floats whose sum depends on the order.
func randomVectors(g *rand.Rand, sizes []int, dtypes []string) []Part {
	parts := make([]Part, len(sizes))
	for i, n := range sizes {
		p := Part{Name: fmt.Sprint("v", i), DType: dtypes[i]}
		for range n {
			x := g.NormFloat64() * math.Pow(10, float64(g.IntN(8)))
			if p.DType == "F32" {
				p.Data = binary.NativeEndian.AppendUint32(p.Data, math.Float32bits(float32(x)))
			} else {
				p.Data = binary.NativeEndian.AppendUint64(p.Data, math.Float64bits(x))
			}
		}
		parts[i] = p
	}
	return parts
}

// together runs f as every member of a group and returns the errors.
func together(m Mesh, ranks []int, f func(ep Endpoint, g Group) error) error {
	errs := make([]error, len(ranks))
	var wg sync.WaitGroup
	for k, r := range ranks {
		wg.Go(func() {
			errs[k] = f(m.Endpoint(r), Group{Ranks: ranks, Me: k})
			if errs[k] != nil {
				m.Endpoint(r).Fail(errs[k])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// The twin: one loop over the ranks in order.
func TestAllReduceIsTheSumInRankOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 6).Draw(t, "mesh")
		ranks := rapid.Permutation(seq(size)).Draw(t, "order")[:rapid.IntRange(1, size).Draw(t, "group")]
		if rapid.Bool().Draw(t, "one twice") {
			ranks = append(ranks, ranks[0])
		}
		sizes := rapid.SliceOfN(rapid.IntRange(0, 20), 0, 5).Draw(t, "sizes")
		dtypes := make([]string, len(sizes))
		for i := range dtypes {
			dtypes[i] = rapid.SampledFrom([]string{"F32", "F64"}).Draw(t, "dtype")
		}
		g := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		mine := make([][]Part, len(ranks))
		for k := range mine {
			mine[k] = randomVectors(g, sizes, dtypes)
		}
		want := make([][]byte, len(sizes))
		for i := range sizes {
			want[i] = bytes.Clone(mine[0][i].Data)
			for k := 1; k < len(ranks); k++ {
				if err := sumInto(want[i], mine[k][i].Data, dtypes[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		var mesh Mesh
		var err error
		if rapid.Bool().Draw(t, "shaped") {
			mesh, err = NewShaped(size, func(from, to int) Link {
				return Link{Latency: time.Duration(g.IntN(200)) * time.Microsecond}
			})
		} else {
			mesh, err = NewLocal(size)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer mesh.Close()
		err = together(mesh, ranks, func(ep Endpoint, group Group) error {
			return AllReduce(context.Background(), ep, group, Tag{Channel: 3}, mine[group.Me], sumInto)
		})
		if err != nil {
			t.Fatal(err)
		}
		for k := range mine {
			for i := range sizes {
				if !bytes.Equal(mine[k][i].Data, want[i]) {
					t.Fatalf("member %d, vector %d: %x; want %x", k, i, mine[k][i].Data, want[i])
				}
			}
		}
	})
}

func seq(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// 1e20 + 1 - 1e20 is 0 in rank order and would be 1 in another.
func TestRankOrderIsSeenInTheBits(t *testing.T) {
	l := newLocal(t, 3)
	defer l.Close()
	vectors := [][]Part{}
	for _, x := range []float64{1e20, 1, -1e20} {
		vectors = append(vectors, []Part{{DType: "F64", Data: binary.NativeEndian.AppendUint64(nil, math.Float64bits(x))}})
	}
	err := together(l, []int{0, 1, 2}, func(ep Endpoint, g Group) error {
		return AllReduce(t.Context(), ep, g, Tag{}, vectors[g.Me], sumInto)
	})
	if err != nil {
		t.Fatal(err)
	}
	for k := range vectors {
		if x := math.Float64frombits(binary.NativeEndian.Uint64(vectors[k][0].Data)); x != 0 {
			t.Errorf("member %d has %v", k, x)
		}
	}
}

func TestAllReduceRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b []Part
	}{
		{"other lengths", []Part{{DType: "F32", Data: make([]byte, 64)}}, []Part{{DType: "F32", Data: make([]byte, 60)}}},
		{"other types", []Part{{DType: "F64", Data: make([]byte, 64)}}, []Part{{DType: "F32", Data: make([]byte, 64)}}},
		{"other numbers", []Part{{DType: "F32", Data: make([]byte, 16)}}, []Part{{DType: "F32", Data: make([]byte, 4)}, {DType: "F32", Data: make([]byte, 12)}}},
		{"half an element", []Part{{DType: "F32", Data: make([]byte, 6)}}, []Part{{DType: "F32", Data: make([]byte, 6)}}},
		{"no such type", []Part{{DType: "BOOL", Data: make([]byte, 6)}}, []Part{{DType: "BOOL", Data: make([]byte, 6)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLocal(t, 2)
			defer l.Close()
			err := together(l, []int{0, 1}, func(ep Endpoint, g Group) error {
				return AllReduce(t.Context(), ep, g, Tag{}, [][]Part{c.a, c.b}[g.Me], sumInto)
			})
			if err == nil {
				t.Error("it was summed")
			}
		})
	}
	l := newLocal(t, 2)
	defer l.Close()
	if err := AllReduce(t.Context(), l.Endpoint(0), Group{Ranks: []int{1}}, Tag{}, nil, sumInto); err == nil {
		t.Error("a stranger took part")
	}
}

func TestAFailingMemberEndsACollective(t *testing.T) {
	l := newLocal(t, 3)
	defer l.Close()
	why := errors.New("this rank is ill")
	err := together(l, []int{0, 1, 2}, func(ep Endpoint, g Group) error {
		if g.Me == 2 {
			return why
		}
		return AllReduce(t.Context(), ep, g, Tag{}, []Part{{DType: "F32", Data: make([]byte, 64)}}, sumInto)
	})
	var peer *PeerError
	if !errors.Is(err, why) || !errors.As(err, &peer) || peer.Rank != 2 {
		t.Error(err)
	}
}

func TestSlicesCoverEveryElementOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 6).Draw(t, "sizes")
		dtypes := slices.Repeat([]string{"F32"}, len(sizes))
		vectors := randomVectors(rand.New(rand.NewPCG(1, 2)), sizes, dtypes)
		n := rapid.IntRange(1, 7).Draw(t, "members")
		var whole, laid []byte
		for k := range n {
			for _, p := range slicePart(vectors, k, n) {
				laid = append(laid, p.Data...)
			}
		}
		for _, v := range vectors {
			whole = append(whole, v.Data...)
		}
		if !bytes.Equal(whole, laid) {
			t.Fatalf("%d bytes in slices of %d", len(laid), len(whole))
		}
	})
}
