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
	phaseLend   = iota + 1 // every rank lends each owner that owner's slice
	phaseResult            // every owner shows its summed slice to all
	phaseDone              // every rank tells the first that it has copied what it was shown
	phaseGather
)

// AllReduce replaces the vectors of every rank in group by their sum over the group.
// ep's rank must be in group; group and tag are the same on all of its ranks, and no
// two collectives under way share a tag. All vectors laid end to end are cut into as
// many slices as there are ranks; slice k is summed at group[k], ((v0 + v1) + v2) + ...
// in the order of group, and then copied to everyone: so the bits of the result do not
// depend on timing, transport or who asks.
//
// The vectors are lent to the group until AllReduce returns: in one process owners sum
// in the memory of group[0]. A caller that gets an error must not free or write its
// vectors before the calls of all ranks of its process have returned.
func AllReduce(ctx context.Context, ep Endpoint, group []int, tag Tag, vectors []Part, sum Sum) error {
	me := slices.Index(group, ep.Rank())
	if me < 0 {
		return fmt.Errorf("wire: all-reduce: rank %d is not in the group %v", ep.Rank(), group)
	}
	if err := checkVectors(vectors); err != nil {
		return fmt.Errorf("wire: all-reduce: %w", err)
	}
	if len(group) == 1 {
		return nil
	}
	r := reduction{ctx: ctx, ep: ep, group: group, me: me, tag: tag, sum: sum}
	own, err := r.sumSlice(vectors)
	if err != nil {
		return err
	}
	return r.gather(vectors, own)
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

// reduction is one rank's part in one all-reduce.
type reduction struct {
	ctx   context.Context
	ep    Endpoint
	group []int
	me    int // position in group
	tag   Tag
	sum   Sum
}

func (r *reduction) phase(p uint8) Tag {
	return Tag{Channel: r.tag.Channel, Sequence: r.tag.Sequence, Phase: p}
}

// sumSlice lends this rank's slices to their owners and sums its own slice in the
// memory of the group's first rank. It returns the memory with the sum.
func (r *reduction) sumSlice(vectors []Part) (Message, error) {
	for k, to := range r.group {
		if k == r.me {
			continue
		}
		if err := r.ep.Send(to, r.phase(phaseLend), slicePart(vectors, k, len(r.group))); err != nil {
			return nil, err
		}
	}
	var total Message
	for k, from := range r.group {
		term := slicePart(vectors, r.me, len(r.group))
		if k != r.me {
			m, err := r.ep.Receive(r.ctx, from, r.phase(phaseLend))
			if err != nil {
				return nil, err
			}
			if err := sameForm(term, m); err != nil {
				return nil, fmt.Errorf("wire: all-reduce: rank %d and rank %d: %w", r.ep.Rank(), from, err)
			}
			term = m
		}
		if k == 0 {
			total = term
			continue
		}
		for i := range total {
			if err := r.sum(total[i].Data, term[i].Data, total[i].DType); err != nil {
				return nil, fmt.Errorf("wire: all-reduce: %w", err)
			}
		}
	}
	return total, nil
}

// gather copies every owner's sum into this rank's vectors. When it returns, no other
// rank looks at them any more: an owner shows its result after it has read all terms,
// and those who copy from the first rank's memory tell it when they have.
func (r *reduction) gather(vectors []Part, own Message) error {
	for k, to := range r.group {
		if k == r.me {
			continue
		}
		// Each receiver gets a list of its own: a message belongs to whoever receives it.
		if err := r.ep.Send(to, r.phase(phaseResult), slices.Clone(own)); err != nil {
			return err
		}
	}
	for k, from := range r.group {
		result := own
		if k != r.me {
			m, err := r.ep.Receive(r.ctx, from, r.phase(phaseResult))
			if err != nil {
				return err
			}
			result = m
		}
		mine := slicePart(vectors, k, len(r.group))
		for i := range mine {
			if unsafe.SliceData(mine[i].Data) != unsafe.SliceData(result[i].Data) {
				copy(mine[i].Data, result[i].Data)
			}
		}
	}
	if r.me != 0 {
		return r.ep.Send(r.group[0], r.phase(phaseDone), nil)
	}
	for _, from := range r.group[1:] {
		if _, err := r.ep.Receive(r.ctx, from, r.phase(phaseDone)); err != nil {
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

// AllGather hands this rank's message to every other rank of group and returns the
// messages of all, in the order of group; its own is the one it gave. Group and tag as
// for AllReduce. The message must be ordinary memory that nobody writes any more.
func AllGather(ctx context.Context, ep Endpoint, group []int, tag Tag, m Message) ([]Message, error) {
	me := slices.Index(group, ep.Rank())
	if me < 0 {
		return nil, fmt.Errorf("wire: all-gather: rank %d is not in the group %v", ep.Rank(), group)
	}
	tag.Phase = phaseGather
	for k, to := range group {
		if k == me {
			continue
		}
		if err := ep.Send(to, tag, slices.Clone(m)); err != nil {
			return nil, err
		}
	}
	all := make([]Message, len(group))
	for k, from := range group {
		if k == me {
			all[k] = m
			continue
		}
		var err error
		if all[k], err = ep.Receive(ctx, from, tag); err != nil {
			return nil, err
		}
	}
	return all, nil
}
