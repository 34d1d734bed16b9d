package wire

import "fmt"

// Name is what an edge is for; two with the same Name are the same edge.
type Name struct {
	From, To int
	Group    uint64 // 0 for transfers; otherwise what tells groups apart
	Pair     uint32 // of members of the group, where workers are members more than once
}

// Table numbers edges in the order in which they are named. Credits go back over edges of their own, which it
// names beside. It belongs to one goroutine; every process makes its own, alike.
type Table struct {
	ids   map[Name]uint32
	edges []Edge
}

// credits is the group of the edges that credits go over.
const credits = ^uint64(0)

// Edge is the edge of a name, numbered when first asked for. Its slots are the most that were asked for.
func (t *Table) Edge(n Name, slots int) (Edge, error) {
	if id, known := t.ids[n]; known {
		e := &t.edges[id]
		if slots <= e.Slots {
			return *e, nil
		}
		e.Slots = slots
		grown := *e
		return grown, t.back(n)
	}
	if len(t.edges) >= MaxEdges {
		return Edge{}, fmt.Errorf("wire: more than %d edges", MaxEdges)
	}
	if t.ids == nil {
		t.ids = map[Name]uint32{}
	}
	e := Edge{ID: uint32(len(t.edges)), From: n.From, To: n.To, Slots: slots}
	switch n.Group {
	case 0:
	case credits:
		e.Class = Credits
	default:
		e.Class = Collectives
	}
	t.ids[n] = e.ID
	t.edges = append(t.edges, e)
	if slots > 0 {
		if err := t.back(n); err != nil {
			return Edge{}, err
		}
	}
	return e, nil
}

// back names the edge over which the credits of another go.
func (t *Table) back(n Name) error {
	_, err := t.Edge(Name{From: n.To, To: n.From, Group: credits}, 0)
	return err
}

// Find is the edge of a name that has one. Any goroutine may ask while nobody names edges.
func (t *Table) Find(n Name) (Edge, bool) {
	id, known := t.ids[n]
	if !known {
		return Edge{}, false
	}
	return t.edges[id], true
}

// Edges is all edges by number.
func (t *Table) Edges() []Edge { return t.edges }
