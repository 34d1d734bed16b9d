package profile

import (
	"fmt"
	"math/bits"
	"slices"
)

// State is one place where a pipeline may cut a model's graph. An antichain of layers is before the cut, and so are all
// layers on which these layers depend. Together they are the state's closure. ComputeS, ParameterBytes and
// ActivationBytes are sums over the closure, so the cost of a stage between two states is the difference of their
// values.
type State struct {
	// Antichain lists the layers whose outputs cross the cut, in ascending order. They are of two kinds. Those of the
	// first kind are the last layers before the cut, and none of them depends on another. Those of the second kind are
	// earlier layers, which PipeDream's optimizer adds. Each of them is an ancestor of a layer z of the first kind, and
	// has a reader that is neither z nor an ancestor of z.
	Antichain []int

	ComputeS        float64 // forward and backward of the closure, in seconds
	ParameterBytes  int64   // of the closure
	ActivationBytes int64   // what the closure saves for its backward
	OutputBytes     int64   // outputs of the antichain's layers
}

// States holds the antichain states of a profile's graph, in a topological order: a state comes after all states
// whose closure is inside its own. The last closure is the whole model.
type States struct {
	List []State
	// SlackS and SlackParameterBytes bound the loss by compression, in seconds of compute and in bytes of parameters.
	// If compression drops a state at which a stage begins or ends, the stage begins or ends at a kept state instead.
	// It then has at most this much more compute and this many more bytes. 0 means that nothing is lost.
	SlackS              float64
	SlackParameterBytes int64

	segments []segment
	of       []int32  // segment of each state
	offset   []int    // index of the first bit of each state's closure
	bits     []uint64 // the bits of all closures; a closure has bits only for the layers of its segment
}

// Limits of StatesOf and CompressedStates. They refuse a graph beyond any of these except maxAbsorbed.
const (
	// MaxStates is the largest number of listed antichain states.
	MaxStates = 1 << 20
	// maxAntichains is the largest total number of layers in all antichains: 256 MiB.
	maxAntichains = 1 << 25
	// maxSegment is the largest number of layers in a segment (see States.Segment). A table of which layer comes before
	// which needs the square of that number of bits.
	maxSegment = 1 << 14
	// maxAbsorbed is the largest number of layers that absorption may keep in one segment.
	maxAbsorbed = 1 << 9
	// maxClosureWords is the largest total size of the closures: 512 MiB.
	maxClosureWords = 1 << 26
)

// TooManyStatesError reports a graph that exceeds one of the limits.
type TooManyStatesError struct {
	Model string
	Limit int
	What  string // what exceeds the limit
}

func (e *TooManyStatesError) Error() string {
	return fmt.Sprintf("profile: %s has more than %d %s; no more are searched: join branches of its graph into "+
		"single layers", e.Model, e.Limit, e.What)
}

// StatesOf lists all antichain states of a profile's graph, as PipeDream's and DAPPLE's published optimizers do. The
// list begins with layer 0 alone. From each state it goes on to larger states. A larger state adds one layer that reads
// a layer of the smaller state's augmented antichain, and all layers on which the added layer depends. The argument
// `costs` has one entry for each layer, as from p.At.
//
// It refuses graphs that are not connected, and graphs beyond MaxStates or one of the other limits.
func StatesOf(p *Profile, costs []Cost) (*States, error) {
	g, err := newGraph(p, costs)
	if err != nil {
		return nil, err
	}
	return g.states(make([]bool, len(p.Layers)), MaxStates)
}

// Before reports whether the closure of state i is strictly inside the closure of state j. A stage can then run from i
// to j.
func (s *States) Before(i, j int) bool {
	if s.of[i] != s.of[j] {
		return s.of[i] < s.of[j]
	}
	if i >= j {
		return false // the list is in topological order
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

// Segment returns the segment of state i. Segments are the parts of the graph between layers through which every path
// passes. The states of a segment are Before all states of later segments, and are listed before them.
func (s *States) Segment(i int) int { return int(s.of[i]) }

// Layers returns the closure of state i, ascending: the layers before the cut.
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

// Order returns a topological order of all layers that begins with the closure of each state of a chain. If the chain
// consists of the cuts of a plan, the order is plan.Plan.Order. The result `ends` has the number of layers in the
// closure of each state. Each state must be Before the next. Layers that no state of the chain contains come last.
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

// segment holds consecutive layers of the graph, from first to last. Every path passes through a segment's last layer,
// except perhaps the last layer of the last segment. All states of a segment come before all states of the next
// segment.
type segment struct{ first, last int }

func (s segment) words() int { return (s.last-s.first)/64 + 1 }

// graph holds a profile's layers. pred has the layers that each layer reads, and succ those that read it, each of them
// once.
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

// segments cuts the graph after each layer that comes after all earlier layers and before all later ones, unless the
// next layer is absorbed. If a segment has more than maxAbsorbed layers at such a place, the next layer is no longer
// absorbed.
//
// Layer k is such a layer under two conditions. Each earlier layer has a reader at or before k, so a path leads from it
// to k. Each later layer reads a layer from k on.
func (g *graph) segments(absorbed []bool) []segment {
	n := len(g.pred)
	// reads[k] is the minimum, over the layers after k, of the last layer that each of them reads.
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
	first, read := 0, -1 // `read` is the maximum, over the earlier layers, of the first reader of each
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
