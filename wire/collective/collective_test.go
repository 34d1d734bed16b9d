package collective

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes ports in this process, and a group of all of them.
func open(t testing.TB, members int) (*wire.Ports, []*Group) {
	t.Helper()
	all, err := wire.InProcess(members)
	if err != nil {
		t.Fatal(err)
	}
	ranks := make([]int, members)
	for k := range ranks {
		ranks[k] = k
	}
	ports, err := wire.NewPorts(all, ranks, func(int) wire.Config { return wire.Config{} })
	if err != nil {
		t.Fatal(err)
	}
	var table wire.Table
	var groups []*Group
	if err := NameEdges(&table, 1, ranks, func(int) bool { return true }, true); err != nil {
		t.Fatal(err)
	}
	for me := range ranks {
		g, err := NewGroup(&table, ports.Port(me), 1, ranks, me)
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, g)
	}
	ports.Begin(1, table.Edges())()
	return ports, groups
}

// all calls AllReduce as every member. The first member that fails makes the group fail.
func all(ports *wire.Ports, groups []*Group, vectors [][]wire.Buffer) []error {
	errs := make([]error, len(groups))
	var calls sync.WaitGroup
	for k, g := range groups {
		calls.Go(func() {
			if errs[k] = g.AllReduce(context.Background(), vectors[k], add); errs[k] != nil {
				ports.Fail(k, errs[k])
			}
		})
	}
	calls.Wait()
	return errs
}

// add adds the float64 elements of src to dst.
func add(dst, src []byte, _ wire.DType) error {
	le := binary.LittleEndian
	for i := 0; i+8 <= len(dst); i += 8 {
		a, b := math.Float64frombits(le.Uint64(dst[i:])), math.Float64frombits(le.Uint64(src[i:]))
		le.PutUint64(dst[i:], math.Float64bits(a+b))
	}
	return nil
}

// TestRankOrderIsSeenInTheBits: the sum 1e20 + 1 - 1e20 is 0 in rank order. It would be 1 if 1e20 and -1e20 were added
// first.
func TestRankOrderIsSeenInTheBits(t *testing.T) {
	ports, groups := open(t, 3)
	defer ports.Close()
	var vectors [][]wire.Buffer
	for _, x := range []float64{1e20, 1, -1e20} {
		data := binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))
		vectors = append(vectors, []wire.Buffer{{DType: wire.F64, Data: data}})
	}
	for _, err := range all(ports, groups, vectors) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for k := range vectors {
		if x := math.Float64frombits(binary.LittleEndian.Uint64(vectors[k][0].Data)); x != 0 {
			t.Errorf("member %d has %v", k, x)
		}
	}
}

func TestAllReduceRefuses(t *testing.T) {
	of := func(d wire.DType, n int) []wire.Buffer { return []wire.Buffer{{DType: d, Data: make([]byte, n)}} }
	for _, c := range []struct {
		name, says string
		a, b       []wire.Buffer
	}{
		{"other lengths", "a group sums equal lists", of(wire.F32, 64), of(wire.F32, 56)},
		{"other types", "a group sums equal lists", of(wire.F64, 64), of(wire.F32, 64)},
		{"other numbers", "a group sums equal lists", of(wire.F32, 16), append(of(wire.F32, 4), of(wire.F32, 12)...)},
		{"half an element", "no whole number of F32", of(wire.F32, 6), of(wire.F32, 6)},
		{"no such type", "cannot be summed", of(wire.Bool, 6), of(wire.Bool, 6)},
	} {
		t.Run(c.name, func(t *testing.T) {
			ports, groups := open(t, 2)
			defer ports.Close()
			said := false
			for _, err := range all(ports, groups, [][]wire.Buffer{c.a, c.b}) {
				if err == nil {
					t.Error("it was summed")
				} else if strings.Contains(err.Error(), c.says) {
					said = true
				}
			}
			if !said {
				t.Errorf("nobody says %q", c.says)
			}
		})
	}
	ports, _ := open(t, 2)
	defer ports.Close()
	var table wire.Table
	if _, err := NewGroup(&table, ports.Port(0), 1, []int{1}, 0); err == nil {
		t.Error("a stranger took part")
	}
	if _, err := NewGroup(&table, ports.Port(0), 1, []int{0, 1}, 0); err == nil {
		t.Error("a group without edges was made")
	}
}

func TestSlicesCoverEveryElementOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		var vectors []wire.Buffer
		var whole, laid []byte
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 9), 0, 6).Draw(t, "sizes") {
			b := wire.Buffer{DType: wire.F32}
			for range 4 * n {
				b.Data = append(b.Data, byte(g.Uint32()))
			}
			whole = append(whole, b.Data...)
			vectors = append(vectors, b)
		}
		n := rapid.IntRange(1, 7).Draw(t, "members")
		for k := range n {
			for _, p := range slicePart(vectors, k, n) {
				laid = append(laid, p.Data...)
			}
		}
		if !bytes.Equal(whole, laid) {
			t.Fatalf("%d bytes in slices of %d", len(laid), len(whole))
		}
	})
}
