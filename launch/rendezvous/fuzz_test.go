package rendezvous

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
)

// Any bytes are read as a Hello or refused. A Hello that was read is within the limits, and no bytes after it are read.
func FuzzHello(f *testing.F) {
	for _, v := range []any{rank(1, 4).Own, Hello{}, "hello", nil, []int{1}} {
		text, err := encode(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(text, "behind"...))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bytes.NewReader(text)
		var h Hello
		if hear(r, maxHello, &h) != nil || h.check() != nil {
			return
		}
		if n := 4 + int(text[0]) + int(text[1])<<8; r.Len() != len(text)-n {
			t.Errorf("%d bytes are left of %d behind %d", r.Len(), len(text), n)
		}
		if h.Rank < 0 || h.Rank >= h.Size || len(h.Address) > maxAddress || len(h.Host) > maxText {
			t.Errorf("%+v was let in", h)
		}
	})
}

// Any bytes are read as a table or refused. A table that was read is encoded to the same content again.
func FuzzTable(f *testing.F) {
	good := packed{Hosts: []string{"a", "b"}, At: []int{1, 0, 1}, Addresses: [][]byte{{1}, nil, {2, 3}},
		Differ: []string{"d"}}
	f.Add(good.encode(), 3)
	f.Add([]byte{1, 1, 'a', 2, 0, 0, 0, 0, 0}, 2)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		if size < 1 || size > 1000 {
			return
		}
		p, err := decode(text, size)
		if err != nil {
			return
		}
		if places := p.places(); len(places) != size {
			t.Errorf("%d places of %d", len(places), size)
		}
		again, err := decode(p.encode(), size)
		if err != nil || !reflect.DeepEqual(again.places(), p.places()) || !slices.Equal(again.Differ, p.Differ) {
			t.Errorf("%+v came back as %+v (%v)", p, again, err)
		}
	})
}

// Whatever processes send, the roll ends in one of its phases, with reasons if it has failed.
func FuzzRoll(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add([]byte{0x21, 0x22, 0x11, 0x41, 0x42})
	f.Fuzz(func(t *testing.T, steps []byte) {
		const size = 4
		r := newRoll(rank(0, size).Own, 1)
		entered := map[int]bool{}
		for _, s := range steps {
			who := int(s & 3)
			switch s >> 4 {
			case 0, 1:
				h := rank(who, size).Own
				if s&4 != 0 {
					h.Facts[0].Value = "other"
				}
				if s&8 != 0 {
					h.Size = 9
				}
				before := r.phase
				in, err := r.add(h)
				if (err != nil) != (before == going) || !in && err == nil && len(r.reasons) == 0 {
					t.Fatalf("in phase %d rank %d: entered %v, %v; reasons %q", before, who, in, err, r.reasons)
				}
				if in {
					if entered[who] || who == 0 {
						t.Fatalf("rank %d entered twice", who)
					}
					entered[who] = true
					r.clock(who, Clock{})
				}
			case 2:
				if entered[who] && r.word(who).Kind == table {
					r.took(who)
				}
			case 3:
				if entered[who] {
					r.lost(who, errNobody)
				}
			case 4:
				r.late(1)
			case 5:
				r.end()
			}
			switch {
			case (r.phase == failed) != (len(r.reasons) > 0) && r.phase != gathering:
				t.Fatalf("phase %d with reasons %q", r.phase, r.reasons)
			case r.phase == going && r.have != size, r.phase == sharing && len(entered) != size-1:
				t.Fatalf("phase %d with %d ready, %d entered", r.phase, r.have, len(entered))
			}
			for w := range size {
				if w := r.word(w); w.Kind == refused && len(w.Reasons) == 0 {
					t.Fatal("a refusal without a reason")
				}
			}
		}
	})
}
