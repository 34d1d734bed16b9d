package wire

import (
	"context"
	"fmt"
	"slices"
	"unsafe"
)

// Sum adds src to dst element by element. Both hold elements of dtype in the machine's
// byte order and are equally long.
type Sum func(dst, src []byte, dtype string) error

// elementSize is the bytes of an element that can be summed.
var elementSize = map[string]int{"F32": 4, "F64": 8, "I64": 8, "U8": 1}

// The rounds of AllReduce.
const (
	phaseLend   = iota + 1 // every member lends each owner that owner's slice
	phaseResult            // every owner shows its summed slice to all
	phaseDone              // every member tells the first that it has copied what it was shown
)

// Group is the members of a collective in the order that sums go by, and which of them
// the caller is. A rank may be a member more than once; each membership calls for itself.
type Group struct {
	Ranks []int
	Me    int // position in Ranks
}

func (g Group) check(ep Endpoint) error {
	if g.Me < 0 || g.Me >= len(g.Ranks) || g.Ranks[g.Me] != ep.Rank() {
		return fmt.Errorf("rank %d is not member %d of the group %v", ep.Rank(), g.Me, g.Ranks)
	}
	if len(g.Ranks) > 1<<16 {
		return fmt.Errorf("a group of %d; at most %d can be", len(g.Ranks), 1<<16)
	}
	return nil
}

// round is one member's view of one collective: messages to and from the others.
type round struct {
	ctx context.Context
	ep  Endpoint
	Group
	tag Tag
}

func (r *round) send(phase uint8, to int, m Message) error {
	t := r.tag
	t.Phase, t.Pair = phase, uint32(r.Me)<<16|uint32(to)
	return r.ep.Send(r.Ranks[to], t, m)
}

func (r *round) receive(phase uint8, from int) (Message, error) {
	t := r.tag
	t.Phase, t.Pair = phase, uint32(from)<<16|uint32(r.Me)
	return r.ep.Receive(r.ctx, r.Ranks[from], t)
}

// AllReduce replaces the vectors of every member by their sum over the group. The
// ranks and the tag are the same for all members, and no two collectives under way share a
// tag. All vectors laid end to end are cut into as many slices as there are members;
// slice k is summed by member k, ((v0 + v1) + v2) + ... in the order of the group, and
// then copied to everyone: so the bits of the result do not depend on timing,
// transport or who asks.
//
// The vectors are lent to the group until AllReduce returns: in one process the sums
// form in the memory of member 0. A caller that gets an error must not free or write
// its vectors before the calls of all members in its process have returned.
func AllReduce(ctx context.Context, ep Endpoint, group Group, tag Tag, vectors []Part, sum Sum) error {
	if err := group.check(ep); err != nil {
		return fmt.Errorf("wire: all-reduce: %w", err)
	}
	if err := checkVectors(vectors); err != nil {
		return fmt.Errorf("wire: all-reduce: %w", err)
	}
	if len(group.Ranks) == 1 {
		return nil
	}
	r := round{ctx: ctx, ep: ep, Group: group, tag: tag}
	own, err := r.sumSlice(vectors, sum)
	if err != nil {
		return err
	}
	return r.spread(vectors, own)
}

func checkVectors(vectors []Part) error {
	for _, v := range vectors {
		size := elementSize[v.DType]
		if size == 0 {
			return fmt.Errorf("vector %q: elements of type %q cannot be summed; F32, F64, I64 and U8 can", v.Name, v.DType)
		}
		if len(v.Data)%size != 0 {
			return fmt.Errorf("vector %q: %d bytes are no whole number of %s", v.Name, len(v.Data), v.DType)
		}
	}
	return nil
}

// sumSlice lends this member's slices to their owners and sums its own slice in the
// memory of member 0. It returns the memory with the sum.
func (r *round) sumSlice(vectors []Part, sum Sum) (Message, error) {
	n := len(r.Ranks)
	for k := range n {
		if k == r.Me {
			continue
		}
		if err := r.send(phaseLend, k, slicePart(vectors, k, n)); err != nil {
			return nil, err
		}
	}
	var total Message
	for k := range n {
		term := slicePart(vectors, r.Me, n)
		if k != r.Me {
			m, err := r.receive(phaseLend, k)
			if err != nil {
				return nil, err
			}
			if err := sameForm(term, m); err != nil {
				return nil, fmt.Errorf("wire: all-reduce: members %d and %d of %v: %w", r.Me, k, r.Ranks, err)
			}
			term = m
		}
		if k == 0 {
			total = term
			continue
		}
		for i := range total {
			if err := sum(total[i].Data, term[i].Data, total[i].DType); err != nil {
				return nil, fmt.Errorf("wire: all-reduce: %w", err)
			}
		}
	}
	return total, nil
}

// spread copies every owner's sum into this member's vectors. When it returns, nobody
// else looks at them any more: an owner shows its result after it has read all terms,
// and those who copy from member 0's memory tell it when they have.
func (r *round) spread(vectors []Part, own Message) error {
	n := len(r.Ranks)
	for k := range n {
		if k == r.Me {
			continue
		}
		// Each receiver gets a list of its own: a message belongs to whoever receives it.
		if err := r.send(phaseResult, k, slices.Clone(own)); err != nil {
			return err
		}
	}
	for k := range n {
		result := own
		if k != r.Me {
			m, err := r.receive(phaseResult, k)
			if err != nil {
				return err
			}
			result = m
		}
		mine := slicePart(vectors, k, n)
		if err := sameForm(mine, result); err != nil {
			return fmt.Errorf("wire: all-reduce: members %d and %d of %v: %w", r.Me, k, r.Ranks, err)
		}
		for i := range mine {
			if unsafe.SliceData(mine[i].Data) != unsafe.SliceData(result[i].Data) {
				copy(mine[i].Data, result[i].Data)
			}
		}
	}
	if r.Me != 0 {
		return r.send(phaseDone, 0, nil)
	}
	for k := 1; k < n; k++ {
		if _, err := r.receive(phaseDone, k); err != nil {
			return err
		}
	}
	return nil
}

// slicePart is slice k of n of the vectors laid end to end, as views of them.
func slicePart(vectors []Part, k, n int) Message {
	total := 0
	for _, v := range vectors {
		total += len(v.Data) / elementSize[v.DType]
	}
	lo, hi := total*k/n, total*(k+1)/n
	var m Message
	at := 0
	for _, v := range vectors {
		size := elementSize[v.DType]
		count := len(v.Data) / size
		a, b := max(lo-at, 0), min(hi-at, count)
		if a < b {
			m = append(m, Part{Name: v.Name, DType: v.DType, Shape: []int64{int64(b - a)}, Data: v.Data[a*size : b*size]})
		}
		at += count
	}
	return m
}

// sameForm says how two slices that should be added differ.
func sameForm(a, b Message) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d vectors and %d; a group sums equal lists", len(a), len(b))
	}
	for i := range a {
		if a[i].DType != b[i].DType || len(a[i].Data) != len(b[i].Data) {
			return fmt.Errorf("vector %q: %d bytes of %s and %d of %s; a group sums equal lists",
				a[i].Name, len(a[i].Data), a[i].DType, len(b[i].Data), b[i].DType)
		}
	}
	return nil
}
