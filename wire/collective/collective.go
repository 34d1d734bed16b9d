// Package collective sums vectors over groups of workers, in rank order, on any carrier.
//
// In: a Group, with the same members and edges at every member, and each member's vectors or messages. Out: the same
// bits at every member, on every carrier and at any timing. Refused: vectors of different lengths or types in one
// collective, types that cannot be summed, a Group whose caller is not a member.
//
// Slots. On edges with slots (NameEdges), each collective posts its own. A member that joins posts a slot for every
// message that it will receive, and no message is sent before its receiver has joined. So messages of a collective
// never pile up at a worker that has not joined, and they delay no transfer.
//
// Duties of the caller: all members of a Group call the same collectives in the same order, one at a time, and use its
// edges for nothing else. The caller also passes in the function that sums.
package collective

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/millrace-ml/millrace/wire"
)

// Sum adds src to dst element by element. Both hold little-endian elements of dtype and have the same length.
type Sum func(dst, src []byte, dtype wire.DType) error

// Group is one member's view of a collective. It lists the members in the order in which their vectors are added. A
// worker may be a member more than once; it then calls once for each membership.
type Group struct {
	Port  *wire.Port
	Ranks []int
	Me    int         // this member's position in Ranks
	To    []wire.Edge // the edge to each member; the entry for Me is unused
	From  []wire.Edge // the edge from each member; the entry for Me is unused
}

// Slots is the largest number of messages of one all-reduce that wait at a member, on one edge.
const Slots = 3

// most is the largest number of members of a group.
const most = 1 << 16

// NameEdges names edges of a group in a table: those for which `mine` is true for at least one of the two workers. `id`
// identifies the group and is not zero. If `limited` is set, the edges get slots. That is necessary if messages need
// memory at their receiver.
func NameEdges(t *wire.Table, id uint64, ranks []int, mine func(worker int) bool, limited bool) error {
	if len(ranks) > most {
		return fmt.Errorf("collective: a group of %d; at most %d can be", len(ranks), most)
	}
	slots := 0
	if limited {
		slots = Slots
	}
	var all, here []int
	for i, worker := range ranks {
		if all = append(all, i); mine(worker) {
			here = append(here, i)
		}
	}
	for i, worker := range ranks {
		to := here
		if mine(worker) {
			to = all
		}
		for _, j := range to {
			if i == j {
				continue
			}
			if _, err := t.Edge(name(id, ranks, i, j), slots); err != nil {
				return err
			}
		}
	}
	return nil
}

// name returns the name of the edge from member i to member j of a group.
func name(id uint64, ranks []int, i, j int) wire.Name {
	return wire.Name{From: ranks[i], To: ranks[j], Group: id, Pair: uint32(i)<<16 | uint32(j)}
}

// NewGroup makes the group as member `me` sees it. The group's edges must be named in the table.
func NewGroup(t *wire.Table, port *wire.Port, id uint64, ranks []int, me int) (*Group, error) {
	if me < 0 || me >= len(ranks) || ranks[me] != port.Rank() {
		return nil, fmt.Errorf("collective: worker %d is not member %d of the group %v", port.Rank(), me, ranks)
	}
	g := &Group{Port: port, Ranks: ranks, Me: me, To: make([]wire.Edge, len(ranks)), From: make([]wire.Edge, len(ranks))}
	for k := range ranks {
		if k == me {
			continue
		}
		var to, from bool
		g.To[k], to = t.Find(name(id, ranks, me, k))
		g.From[k], from = t.Find(name(id, ranks, k, me))
		if !to || !from {
			return nil, fmt.Errorf("collective: members %d and %d of the group %v have no edges", me, k, ranks)
		}
	}
	return g, nil
}

// The rounds of AllReduce and Exchange. Each is the key of its messages.
const (
	lend   = iota + 1 // each member lends its part of slice k to member k, which sums that slice
	result            // each member sends its summed slice to all other members
	seen              // each member tells member 0 that it has copied the sums shown to it
	given             // in Exchange, each member sends its bytes to all other members
)

// AllReduce replaces the vectors of every member by their sum over the group. With n members, the vectors laid end to
// end are cut into n slices. Member k sums slice k in the order of the group: ((v0 + v1) + v2) + ..., where v0 is slice
// k of member 0's vectors. All members get a copy of the result. So all have the same bits, with any timing and any
// carrier.
//
// The vectors are lent to the group until AllReduce returns, because within a process the sums are made in member 0's
// vectors. After an error the caller must not free or write its vectors immediately. It first waits until the calls of
// all members in its process have returned and its port is closed.
func (g *Group) AllReduce(ctx context.Context, vectors []wire.Buffer, sum Sum) error {
	if err := checkVectors(vectors); err != nil {
		return fmt.Errorf("collective: all-reduce: %w", err)
	}
	if len(g.Ranks) == 1 {
		return nil
	}
	r := round{ctx: ctx, Group: g}
	r.join()
	own, err := r.sumSlice(vectors, sum)
	if err == nil {
		err = r.spread(vectors, own)
	}
	if err == nil {
		err = r.settle()
	}
	return err
}

func checkVectors(vectors []wire.Buffer) error {
	for i := range vectors {
		v := &vectors[i]
		switch v.DType {
		case wire.F32, wire.F64, wire.I64, wire.U8:
		default:
			return fmt.Errorf("vector %d: elements of type %v cannot be summed; F32, F64, I64 and U8 can", i, v.DType)
		}
		if int64(len(v.Data))%v.DType.Size() != 0 {
			return fmt.Errorf("vector %d: %d bytes are no whole number of %v", i, len(v.Data), v.DType)
		}
	}
	return nil
}

// round is one member's part in one collective: its messages to and from the other members.
type round struct {
	*Group
	ctx  context.Context
	sent []chan error // one for each posted message
}

// join posts a slot for every message that this member will receive.
func (r *round) join() {
	for k := range r.Ranks {
		if k == r.Me {
			continue
		}
		slots := 2
		if r.Me == 0 {
			slots = Slots
		}
		r.Port.Post(r.From[k], slots)
	}
}

func (r *round) send(phase uint64, to int, parts []wire.Buffer) error {
	done := make(chan error, 1)
	if err := r.Port.Send(r.To[to], phase, 0, parts, func(err error) { done <- err }); err != nil {
		return err
	}
	r.sent = append(r.sent, done)
	return nil
}

func (r *round) receive(phase uint64, from int) ([]wire.Buffer, error) {
	a, err := r.Port.Receive(r.ctx, r.From[from])
	if err != nil {
		return nil, err
	}
	if a.Key != phase {
		return nil, fmt.Errorf("collective: member %d sends round %d of an all-reduce where %d is due: "+
			"members do not call alike", from, a.Key, phase)
	}
	return a.Parts, nil
}

// settle waits until everything posted has been sent. The vectors may be written after that.
func (r *round) settle() error {
	for _, done := range r.sent {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
		case <-r.Port.Ended():
			return r.Port.Err()
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
	}
	r.sent = r.sent[:0]
	return nil
}

// Exchange sends `own` to all other members, and returns what each of them has sent, indexed by member. The caller's
// own entry is empty. When Exchange has returned, the caller may change `own`.
func (g *Group) Exchange(ctx context.Context, own []byte) ([][]byte, error) {
	r, all := round{ctx: ctx, Group: g}, make([][]byte, len(g.Ranks))
	own = slices.Clone(own) // within a process, the other members read this memory, perhaps after this call has ended
	for k := range g.Ranks {
		if k != g.Me {
			g.Port.Post(g.From[k], 1)
		}
	}
	for k := range g.Ranks {
		if k == g.Me {
			continue
		}
		part := wire.Buffer{DType: wire.U8, Shape: []int64{int64(len(own))}, Data: own}
		if err := r.send(given, k, []wire.Buffer{part}); err != nil {
			return nil, err
		}
	}
	for k := range g.Ranks {
		if k == g.Me {
			continue
		}
		m, err := r.receive(given, k)
		if err != nil {
			return nil, err
		}
		if len(m) != 1 {
			return nil, fmt.Errorf("collective: member %d gives %d buffers in an exchange; it is one", k, len(m))
		}
		all[k] = slices.Clone(m[0].Data)
	}
	return all, r.settle()
}

// sumSlice lends every other member the slice of this member's vectors that the other member sums. Then it sums this
// member's own slice, and returns the sum. It accumulates the sum in member 0's part of the slice, or in a copy if that
// part came from another process.
func (r *round) sumSlice(vectors []wire.Buffer, sum Sum) ([]wire.Buffer, error) {
	n := len(r.Ranks)
	for k := range n {
		if k == r.Me {
			continue
		}
		if err := r.send(lend, k, slicePart(vectors, k, n)); err != nil {
			return nil, err
		}
	}
	var total []wire.Buffer
	for k := range n {
		term := slicePart(vectors, r.Me, n)
		if k != r.Me {
			m, err := r.receive(lend, k)
			if err != nil {
				return nil, err
			}
			if err := sameForm(term, m); err != nil {
				return nil, fmt.Errorf("collective: all-reduce: members %d and %d of %v: %w", r.Me, k, r.Ranks, err)
			}
			term = m
		}
		if k == 0 {
			total = term
			continue
		}
		for i := range total {
			if err := sum(total[i].Data, term[i].Data, total[i].DType); err != nil {
				return nil, fmt.Errorf("collective: all-reduce: %w", err)
			}
		}
	}
	return total, nil
}

// spread copies the sums of all slices from their owners into this member's vectors. An owner sends its sum only after
// it has read all terms. A sum may be in member 0's memory, so the members tell member 0 when they have copied
// everything. After spread has returned, no other member reads this member's vectors.
func (r *round) spread(vectors []wire.Buffer, own []wire.Buffer) error {
	n := len(r.Ranks)
	for k := range n {
		if k == r.Me {
			continue
		}
		// Each receiver gets a list of its own: the port writes into it.
		if err := r.send(result, k, slices.Clone(own)); err != nil {
			return err
		}
	}
	if err := r.settle(); err != nil { // the slices that other members read must not be written before they are sent
		return err
	}
	for k := range n {
		from := own
		if k != r.Me {
			m, err := r.receive(result, k)
			if err != nil {
				return err
			}
			from = m
		}
		mine := slicePart(vectors, k, n)
		if err := sameForm(mine, from); err != nil {
			return fmt.Errorf("collective: all-reduce: members %d and %d of %v: %w", r.Me, k, r.Ranks, err)
		}
		for i := range mine {
			if unsafe.SliceData(mine[i].Data) != unsafe.SliceData(from[i].Data) {
				copy(mine[i].Data, from[i].Data)
			}
		}
	}
	if r.Me != 0 {
		return r.send(seen, 0, nil)
	}
	for k := 1; k < n; k++ {
		if _, err := r.receive(seen, k); err != nil {
			return err
		}
	}
	return nil
}

// slicePart returns slice k of n of the vectors laid end to end, as views of their memory.
func slicePart(vectors []wire.Buffer, k, n int) []wire.Buffer {
	total := 0
	for i := range vectors {
		total += len(vectors[i].Data) / int(vectors[i].DType.Size())
	}
	lo, hi := total*k/n, total*(k+1)/n
	var m []wire.Buffer
	at := 0
	for i := range vectors {
		v := &vectors[i]
		size := int(v.DType.Size())
		count := len(v.Data) / size
		a, b := max(lo-at, 0), min(hi-at, count)
		if a < b {
			m = append(m, wire.Buffer{Value: uint32(i), DType: v.DType, Shape: []int64{int64(b - a)},
				Data: v.Data[a*size : b*size]})
		}
		at += count
	}
	return m
}

// sameForm returns an error if two lists of vectors to be added differ in number, or in a vector's index, type or
// length.
func sameForm(a, b []wire.Buffer) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d vectors and %d; a group sums equal lists", len(a), len(b))
	}
	for i := range a {
		if a[i].DType != b[i].DType || len(a[i].Data) != len(b[i].Data) || a[i].Value != b[i].Value {
			return fmt.Errorf("vector %d: %d bytes of %v and vector %d: %d of %v; a group sums equal lists",
				a[i].Value, len(a[i].Data), a[i].DType, b[i].Value, len(b[i].Data), b[i].DType)
		}
	}
	return nil
}
