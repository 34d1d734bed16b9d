package profile

import (
	"fmt"
	"math/bits"
	"slices"
)

// State is one place where a pipeline may cut a model's graph: everything up to an
// antichain of layers is before the cut. Values are cumulative: what a stage between two
// states takes is the difference of theirs.
type State struct {
	// Antichain is the layers whose outputs cross the cut, ascending: the last layers
	// before it (no one of which comes after another) and, as PipeDream's optimizer
	// augments them, every layer before one of those that some layer outside that one's
	// own history reads.
	Antichain []int

	ComputeS        float64 // forward and backward of the closure, in seconds
	ParameterBytes  int64   // of the closure
	ActivationBytes int64   // what the closure saves for its backward
	OutputBytes     int64   // outputs of the antichain's layers
}

// States is the antichain states of a profile's graph, in a topological order: a state
// comes after all whose closure is inside its own. The last closure is the whole model.
type States struct {
	List []State
	// SlackS and SlackParameterBytes bound what compression may cost: a stage between two
	// states that were dropped takes at most so much more, in seconds of compute and in
	// bytes of parameters, between two that were kept. Zero: nothing is lost.
	SlackS              float64
	SlackParameterBytes int64

	segments []segment
	of       []int32  // the segment of each state
	offset   []int    // where its closure's bits begin
	bits     []uint64 // closures, each the part inside its segment
}

// Limits that StatesOf and CompressedStates state when they refuse.
const (
	// MaxStates is how many antichain states are listed.
	MaxStates = 1 << 20
	// maxAntichains bounds the layers over all antichains: 256 MiB.
	maxAntichains = 1 << 25
	// maxSegment bounds the layers between two that everything passes through; which of
	// them come before which takes its square in bits.
	maxSegment = 1 << 14
	// maxAbsorbed bounds the layers that absorption may keep in one segment.
	maxAbsorbed = 1 << 9
	// maxClosureWords bounds the closures' bits: 512 MiB.
	maxClosureWords = 1 << 26
)

// TooManyStatesError is a graph with more states than are listed.
type TooManyStatesError struct {
	Model string
	Limit int
	What  string // what there are more of
}

func (e *TooManyStatesError) Error() string {
	return fmt.Sprintf("profile: %s has more than %d %s; no more are searched: join branches of its graph into "+
		"single layers", e.Model, e.Limit, e.What)
}

// StatesOf lists all antichain states of a profile's graph as PipeDream's and DAPPLE's
// published optimizers do: beginning with layer 0 alone, each state followed by those
// that one more layer, with all it depends on, makes of it, where the layer reads one of
// the state's augmented antichain. costs is one entry for each layer, as from p.At.
//
// It refuses graphs in pieces, and more than MaxStates states.
func StatesOf(p *Profile, costs []Cost) (*States, error) {
	g, err := newGraph(p, costs)
	if err != nil {
		return nil, err
	}
	return g.states(make([]bool, len(p.Layers)), MaxStates)
}

// Before says whether state i is a strict ancestor of state j: its closure is inside
// that of j, so that a stage can run from one to the other.
func (s *States) Before(i, j int) bool {
	if s.of[i] != s.of[j] {
		return s.of[i] < s.of[j]
	}
	if i >= j {
		return false // the list is topological
	}
	words := s.segments[s.of[i]].words()
	a, b := s.bits[s.offset[i]:][:words], s.bits[s.offset[j]:][:words]
	for w := range a {
		if a[w]&^b[w] != 0 {
			return false
		}
	}
	return true
}

// Segment numbers the parts of the graph between layers that everything passes through:
// states of a part are Before all states of later ones, and the list has them part by part.
func (s *States) Segment(i int) int { return int(s.of[i]) }

// Layers lists the closure of state i, ascending: the layers before the cut.
func (s *States) Layers(i int) []int {
	seg := s.segments[s.of[i]]
	layers := make([]int, seg.first, seg.last+1)
	for l := range layers {
		layers[l] = l
	}
	for w, word := range s.bits[s.offset[i]:][:seg.words()] {
		for ; word != 0; word &= word - 1 {
			layers = append(layers, seg.first+64*w+bits.TrailingZeros64(word))
		}
	}
	return layers
}

// Order is a topological order of all layers in which each state of a chain ends a run. The chain is for example the
// cuts of a plan, and the order what plan.Plan.Order holds. ends is how many layers the closure of each state has.
// Each state must be Before the next; layers that no state holds come last.
func (s *States) Order(chain []int) (order, ends []int) {
	last := s.segments[len(s.segments)-1].last
	taken := make([]bool, last+1)
	take := func(layers []int) {
		for _, l := range layers {
			if !taken[l] {
				taken[l] = true
				order = append(order, l)
			}
		}
	}
	for _, i := range chain {
		take(s.Layers(i))
		ends = append(ends, len(order))
	}
	take(s.Layers(len(s.List) - 1))
	return order, ends
}

// segment is the layers from one that everything passes through, without it, to the next.
// All states of one segment come before all of the next.
type segment struct{ first, last int }

func (s segment) words() int { return (s.last-s.first)/64 + 1 }

// graph is a profile's layers with what each reads and who reads it, each once.
type graph struct {
	profile    *Profile
	costs      []Cost
	pred, succ [][]int
}

func newGraph(p *Profile, costs []Cost) (*graph, error) {
	if len(costs) != len(p.Layers) || len(costs) == 0 {
		return nil, fmt.Errorf("profile: %d costs for the %d layers of %s; states need one for each of one layer or "+
			"more", len(costs), len(p.Layers), p.Model)
	}
	g := &graph{profile: p, costs: costs, pred: make([][]int, len(costs)), succ: make([][]int, len(costs))}
	for l, layer := range p.Layers {
		for _, from := range layer.From {
			if from >= l {
				return nil, fmt.Errorf("profile: layer %d (%s): from is %d; it must be an earlier layer, or -1 for a "+
					"model input", l, layer.Name, from)
			}
			if from >= 0 && !slices.Contains(g.pred[l], from) {
				g.pred[l] = append(g.pred[l], from)
				g.succ[from] = append(g.succ[from], l)
			}
		}
	}
	return g, nil
}

// segments cuts the graph behind each layer that every other one comes before or after,
// unless the layer behind it is absorbed into it. Where that would join more than
// maxAbsorbed layers, the layer behind is absorbed no more.
//
// Layer k is such a layer exactly if each earlier layer has a reader up to k (then a path
// from it ends in k) and each later one reads a layer from k on.
func (g *graph) segments(absorbed []bool) []segment {
	n := len(g.pred)
	// reads[k] is the least, over layers behind k, of the last layer that each reads.
	reads := make([]int, n)
	least := n
	for k := n - 1; k >= 0; k-- {
		reads[k] = least
		last := -1
		if len(g.pred[k]) > 0 {
			last = slices.Max(g.pred[k])
		}
		least = min(least, last)
	}
	var out []segment
	first, read := 0, -1 // read is the most, over earlier layers, of the first reader of each
	for k := range n {
		passed := read <= k && reads[k] >= k
		joined := len(g.succ[k]) == 1 && absorbed[g.succ[k][0]]
		if passed && joined && k-first >= maxAbsorbed {
			absorbed[g.succ[k][0]], joined = false, false
		}
		if k == n-1 || passed && !joined {
			out = append(out, segment{first, k})
			first = k + 1
		}
		reader := n
		if len(g.succ[k]) > 0 {
			reader = slices.Min(g.succ[k])
		}
		read = max(read, reader)
	}
	return out
}
