package wire

import "fmt"

// Name is what an edge is for; two with the same Name are the same edge.
type Name struct {
	From, To int
	Group    uint64 // 0 for transfers; otherwise what tells groups apart
	Pair     uint32 // of members of the group, where workers are members more than once
}

// Table numbers the edges that some workers have: each by how many were named before it that lead from the same
// worker to the same one. So two processes number the edges between them alike when both name them in the same
// order, whatever else each of them names. It belongs to one goroutine.
type Table struct {
	at    map[Name]int // in edges
	named map[way]uint32
	edges []Edge
}

// way is a directed pair of workers.
type way struct{ from, to int }

// credits is the group of the edges that credits go over.
const credits = ^uint64(0)

// Edge is the edge of a name, numbered when first asked for. Its slots are the most that were asked for. Where it
// has any the edge that its credits go back over is named with it.
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

// back names the edge over which the credits of another go.
func (t *Table) back(n Name) error {
	_, err := t.Edge(Name{From: n.To, To: n.From, Group: credits}, 0)
	return err
}

// Find is the edge of a name that has one. Any goroutine may ask while nobody names edges.
func (t *Table) Find(n Name) (Edge, bool) {
	at, known := t.at[n]
	if !known {
		return Edge{}, false
	}
	return t.edges[at], true
}

// Edges is all edges, in the order in which they were named.
func (t *Table) Edges() []Edge { return t.edges }
