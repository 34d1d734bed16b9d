package wire

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func randomHeader(g *rand.Rand) Header {
	h := Header{Epoch: g.Uint32(), Key: g.Uint64(), Step: g.Uint32(), SentS: g.Float64()}
	for range g.IntN(12) {
		b := Buffer{Value: g.Uint32(), DType: DType(1 + g.IntN(5))}
		for range g.IntN(5) {
			b.Shape = append(b.Shape, int64(g.IntN(100)))
		}
		h.Parts = append(h.Parts, b)
	}
	return h
}

func sameHeader(a, b Header) bool {
	return a.Epoch == b.Epoch && a.Key == b.Key && a.Step == b.Step && a.SentS == b.SentS &&
		slices.EqualFunc(a.Parts, b.Parts, func(x, y Buffer) bool {
			return x.Value == y.Value && x.DType == y.DType && slices.Equal(x.Shape, y.Shape)
		})
}

func TestHeadersSurviveTheWire(t *testing.T) {
	long := 0
	for seed := range uint64(500) {
		h := randomHeader(rand.New(rand.NewPCG(seed, 1)))
		frame, rest, err := h.Encode(nil)
		if err != nil || len(frame) != HeaderBytes {
			t.Fatal(len(frame), err)
		}
		if len(rest) > 0 {
			long++
		}
		if n, err := RestOf(frame); err != nil || n != len(rest) {
			t.Fatal(n, len(rest), err)
		}
		got, err := Decode(frame, rest)
		if err != nil || !sameHeader(h, got) {
			t.Fatalf("seed %d: %+v, %v; want %+v", seed, got, err, h)
		}
	}
	if long < 50 {
		t.Errorf("%d of 500 headers had more descriptions than room", long)
	}
}

// TestHeadersAreLittleEndian compares the beginning of a header with bytes written by hand, since other builds must be
// able to read headers.
func TestHeadersAreLittleEndian(t *testing.T) {
	h := Header{Epoch: 0x01020304, Key: 0x1112131415161718, Step: 0x21222324, SentS: 1,
		Parts: []Buffer{{Value: 5, DType: F64, Shape: []int64{3, 2}}}}
	frame, _, err := h.Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []byte{
		'M', 'W', 1, 0, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 1, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		5, 0, 0, 0, 2, 2, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
	}
	if !bytes.Equal(frame[:len(want)], want) {
		t.Errorf("%x; want %x", frame[:len(want)], want)
	}
}

func TestBadHeadersAreRefused(t *testing.T) {
	good := Header{Parts: []Buffer{{DType: F32, Shape: []int64{2, 3}}}}
	for _, c := range []struct {
		name   string
		change func(frame []byte) []byte
		says   string
	}{
		{"short", func(b []byte) []byte { return b[:100] }, "100 bytes"},
		{"magic", func(b []byte) []byte { b[0] = 'X'; return b }, "no header"},
		{"version", func(b []byte) []byte { b[2] = 9; return b }, "version 9"},
		{"parts", func(b []byte) []byte { b[22] = 0xff; return b }, "tensors; it has at most"},
		{"fewer parts", func(b []byte) []byte { b[20] = 40; return b }, "tensor 1"},
		{"rest", func(b []byte) []byte { b[40] = 3; return b }, "says 3"},
		{"long rest", func(b []byte) []byte { b[43] = 0x7f; return b }, "bytes more of descriptions"},
		{"type", func(b []byte) []byte { b[52] = 77; return b }, "type 77"},
		{"rank", func(b []byte) []byte { b[53] = 200; return b }, "200 dimensions"},
		{"padding", func(b []byte) []byte { b[54] = 1; return b }, "damaged"},
		{"negative", func(b []byte) []byte { b[63] = 0x80; return b }, "shape"},
		{"huge", func(b []byte) []byte { b[62], b[70] = 0x7f, 0x7f; return b }, "is over"},
		{"size", func(b []byte) []byte { b[32]++; return b }, "says 25 bytes; its tensors have 24"},
	} {
		frame, _, err := good.Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := Decode(c.change(frame), nil); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v; want something about %q", c.name, h, err, c.says)
		}
	}
	for _, b := range []Buffer{{DType: 99}, {DType: F32, Shape: []int64{-1}},
		{DType: F32, Shape: []int64{1 << 30, 1 << 30}}, {DType: F32, Shape: make([]int64, 17)}} {
		if _, _, err := (&Header{Parts: []Buffer{b}}).Encode(nil); err == nil {
			t.Errorf("%+v was written", b)
		}
	}
}

// FuzzHeader: any header frame is either read within the limits or refused. What was read is still the same after it
// has been encoded and read again.
func FuzzHeader(f *testing.F) {
	for seed := range uint64(20) {
		h := randomHeader(rand.New(rand.NewPCG(seed, 1)))
		frame, rest, err := h.Encode(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame, rest)
	}
	f.Fuzz(func(t *testing.T, frame, rest []byte) {
		h, err := Decode(frame, rest)
		if err != nil {
			return
		}
		if n := h.Bytes(); n < 0 || n > MaxBytes || len(h.Parts) > MaxParts {
			t.Fatalf("%d bytes in %d tensors", n, len(h.Parts))
		}
		again, more, err := h.Encode(nil)
		if err != nil || !bytes.Equal(more, rest) {
			t.Fatalf("%v: %x behind; want %x", err, more, rest)
		}
		got, err := Decode(again, more)
		if err != nil || h.SentS == h.SentS && !sameHeader(h, got) {
			t.Fatalf("%+v, %v; want %+v", got, err, h)
		}
	})
}

// TestAQueueForgetsItsFirst: a queue keeps no reference to an element that was removed.
func TestAQueueForgetsItsFirst(t *testing.T) {
	queue := []*int{new(int), new(int)}
	rest := behindFirst(queue)
	if len(rest) != 1 || rest[0] != queue[1] || queue[0] != nil {
		t.Errorf("%v of %v", rest, queue)
	}
	if none := behindFirst(rest); len(none) != 0 || cap(none) != cap(rest) || queue[1] != nil {
		t.Errorf("%v of %v", none, queue)
	}
}

// TestTheTableNumbersEdgesOfAPair: edges between two workers are numbered separately, in their own order, whatever
// other edges are named in between.
func TestTheTableNumbersEdgesOfAPair(t *testing.T) {
	var a, b Table
	for _, table := range []*Table{&a, &b} {
		for range 2 {
			for from := range 3 {
				if table == &b && from == 1 {
					continue // the table has none of these edges
				}
				for group := range uint64(2) {
					if _, err := table.Edge(Name{From: from, To: 2 - from, Group: group}, 4); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	ofB := slices.DeleteFunc(slices.Clone(a.Edges()), func(e Edge) bool { return e.From == 1 })
	if !slices.Equal(ofB, b.Edges()) {
		t.Errorf("%v and %v", a.Edges(), b.Edges())
	}
	classes, named := map[Class]int{}, map[way]uint32{}
	for _, e := range a.Edges() {
		if on := (way{e.From, e.To}); e.ID != named[on] {
			t.Errorf("%v is number %d of its pair", e, named[on])
		}
		named[way{e.From, e.To}]++
		classes[e.Class]++
	}
	if classes[Transfers] != 3 || classes[Collectives] != 3 || classes[Credits] != 3 {
		t.Error(classes)
	}
	if TagOf(1<<12|5, 1<<20|7, 9) != 5<<52|7<<32|9 {
		t.Errorf("%#x", TagOf(1<<12|5, 1<<20|7, 9))
	}
}

func TestAFailureTravelsWithRankAndText(t *testing.T) {
	text, err := (&PeerError{Rank: 3, Err: errors.New("out of memory\nin 2F0")}).MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var got PeerError
	if err := got.UnmarshalText(text); err != nil || got.Rank != 3 || got.Err.Error() != "out of memory\nin 2F0" {
		t.Error(got, err)
	}
	for _, bad := range []string{"", "{}", `{"rank":-1,"why":"x"}`, `{"rank":1}`} {
		if got.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
