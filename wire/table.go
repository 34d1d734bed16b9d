package wire

import "fmt"

// Name says what an edge is for. Two edges with the same Name are the same edge.
type Name struct {
	From, To int
	Group    uint64 // identifies the group; 0 for transfers, which have no group
	Pair     uint32 // the pair of members, needed if a worker is several members of the group
}

// Table numbers edges. The edges from one worker to another are numbered from 0, in the order in which they are named.
// Other edges do not change these numbers. So two processes that name the edges between them in the same order give
// them the same numbers. Only one goroutine may use a Table at a time.
type Table struct {
	at    map[Name]int // index in edges
	named map[way]uint32
	edges []Edge
}

// way is a directed pair of workers.
type way struct{ from, to int }

// credits is the group of the edges that carry credits.
const credits = ^uint64(0)

// Edge returns the edge of a name. If the name is new, Edge numbers it. The edge has the largest number of slots that
// any call has asked for so far. If it has slots, an edge for its credits is named too.
func (t *Table) Edge(n Name, slots int) (Edge, error) {
	if at, known := t.at[n]; known {
		e := &t.edges[at]
		if slots <= e.Slots {
			return *e, nil
		}
		e.Slots = slots
		grown := *e
		return grown, t.back(n)
	}
	on := way{n.From, n.To}
	if t.named[on] >= MaxEdges {
		return Edge{}, fmt.Errorf("wire: more than %d edges from worker %d to worker %d", MaxEdges, n.From, n.To)
	}
	if t.at == nil {
		t.at, t.named = map[Name]int{}, map[way]uint32{}
	}
	e := Edge{ID: t.named[on], From: n.From, To: n.To, Slots: slots}
	switch n.Group {
	case 0:
	case credits:
		e.Class = Credits
	default:
		e.Class = Collectives
	}
	t.at[n] = len(t.edges)
	t.named[on]++
	t.edges = append(t.edges, e)
	if slots > 0 {
		if err := t.back(n); err != nil {
			return Edge{}, err
		}
	}
	return e, nil
}

// back names the edge that carries the credits of n back.
func (t *Table) back(n Name) error {
	_, err := t.Edge(Name{From: n.To, To: n.From, Group: credits}, 0)
	return err
}

// Find returns the edge of a name; false if it was not named. Any goroutine may call it while no edge is being
// named.
func (t *Table) Find(n Name) (Edge, bool) {
	at, known := t.at[n]
	if !known {
		return Edge{}, false
	}
	return t.edges[at], true
}

// Edges returns all edges, in the order in which they were named.
func (t *Table) Edges() []Edge { return t.edges }
