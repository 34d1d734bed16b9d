package bound

import (
	"math"

	"github.com/millrace-ml/millrace/profile"
)

// fillBound is serverBound with the way of a micro-batch through the stages of a path, one by one. serverBound has
// the least that any stages could take in its place.
//
// Fill. Take stages b..i, b before i. Stage b begins a step after its own update in the step
// before. Then the first micro-batch of a device of stage i goes forward through b..i-1 and over the
// cuts between; the device works, and its last micro-batch goes back the same way before b
// sums and updates. With c the forward and backward of a stage on the rows that its replicas have, t
// the transfer over a cut, and e what is left of a sum behind a backward (left) and the update,
//
//	step >= sum of c over b..i-1 + e of b + 2 sum of t over the cuts from b to i + work of i
//
// for every b. fill is the greatest of these over b up to the last cut, without it, and so with one more
// stage
//
//	fill' = c + max(fill + 2 t, e)
//
// With backwards in halves c and work are without the second halves, which can be put off.
//
// In turn. Where w devices take micro-batches in turn, the last of them to begin has its first when w different ones
// have come through a stage of q devices before it. One of these q has done ceil(w/q) of them by then, so that
// ceil(w/q) - 1 forwards come on top; and likewise, with backwards, for the device that ends first. fill(w) is
// fill for such a device, so
//
//	fill'(w) = c + max(fill(w) + 2 t, max(fill(1) + 2 t, e) + (ceil(w/q) - 1) max(f, b))
//
// and work is that of floor(M/r) micro-batches then, or of one more for the last of those M mod r that have one more.
// Over the one link of a group w of them come one after the other: (w-1) a / rate.
//
// Return. Before its first backward a device waits for a micro-batch to go on from its stage to the end and back,
// rear; its backwards follow. As well its last backward comes after all of its forwards, and rear. With X micro-batches
//
//	step >= fill + 2 t + max(f + rear + X b, X f + rear + b)
//
// and without the fill, but with e; the first of these, without rear and the cut in front of it, is tail. rear is
// the least over stages that the layers behind have on the devices that
// are left, each of which does its own work within T.
//
// Where micro-batches are split, a device of q gets its slice from r others in pieces of which one is a
// part in q (ceil(r/q) + 1) of all at least; and it sends the gradient of that back to where it is from.
//
// Cuts. Before a link is first taken for a cut, fill has gone by, and the last of X micro-batches that
// cross it goes on through what is behind the cut, and back:
//
//	T >= fill + (X+1) a / rate + rear
//
// for the link of a group, and where each pair of devices has its own for the pair that carries most:
// X / (r q) of a stage of r and one of q, in whole micro-batches if these are not split. With
// split the last slice comes back alone: X, not X+1. Where the devices of the last stage are known (place.last) a pair
// carries more (pair): in turn every lcm(q, r)-th micro-batch, and with split the first devices of both stages share
// as many rows as the smaller slice has. A path that was within a group, then in several and then within another has
// sent all over the one link of the first, at some cut or other: of the fewest bytes of these (exit).
//
// Slices. With split there are three kinds of fill, each from a stage's device to one of the next. Every device waits
// for all of its slice, and where that comes over the one link of a group for all its bytes there and back. The first
// device of a stage has its slice from the first of the one before. And over one link some device has the last slice:
// a whole micro-batch has gone by then, of which the device sends its own slice back.
//
// Ties. Stages that share parameters wait for each other's gradients, so long at least as the fastest link takes.
//
// Of all paths to a layer that have taken the same devices (places), the one with the least fill allows whatever the
// others do. So the least fill for each is enough, for each w by itself.
type fillBound struct {
	*serverBound
	*places
	widths []int     // the numbers w of which fill(w) is known
	least  []float64 // fill by layer, place and width
	from   []parent  // by layer and place, on the path with the least fill(1)
	at     parent
	before []float64 // fill and the cut, by width
	out    []exit    // by layer and place
	// tail, by layer and place, is what the last stage takes beside rear and the cut between.
	tail []float64
	parts
	lines

	work  []float64     // of the layers from one on, at least, on all devices
	rear  [][]float64   // by devices at most and first layer: the way through the layers from there on
	front [][][]float64 // the same with the cut in front of them, by the devices of the stage before (lasts)

	rows [][][]float64 // left, by set of devices and first layer
}

// parts are, by replicas, prefix sums over layers of the least of: what a micro-batch's way there and back takes (with
// halves only the first), a forward, a backward, and of that the first half.
type parts struct{ pass, ahead, back, half [][]float64 }

// exit is what is known of how a path left the group that it was in last: the fill then, and the fewest bytes of the
// cuts since. Each is the least of all paths by itself.
type exit struct{ fill, bytes float64 }

// parent is where a path comes from.
type parent struct{ layer, place, set int }

// maxFillStates bounds layers times devices, squared, and maxMoves layers squared times moves.
const maxFillStates, maxMoves = 1 << 22, 1 << 27

// The kinds of fill where micro-batches are split, in place of the widths: of every device of a stage, of its first
// one, and of one that nobody names.
const every, named, some = 1, 2, 3

func (s *serverBound) fill() *fillBound {
	n, W := len(s.p.Layers), s.kind.Workers
	if s.shared || n*n*W*W > maxFillStates {
		return nil
	}
	f := &fillBound{serverBound: s, parts: s.partsOf(), lines: s.linesOf(), work: make([]float64, n+1)}
	if f.places = s.exact(); f.places == nil {
		f.places = countedPlaces(W, s.size, true)
	}
	if f.widths = []int{1}; s.split {
		f.widths = []int{every, named, some}
	}
	for _, w := range []int{2, 3, 4, 6, 8, 12, 16, 24, 32} {
		if !s.split && w <= min(W, s.M) {
			f.widths = append(f.widths, w)
		}
	}
	f.before = make([]float64, len(f.widths))
	f.out, f.tail = make([]exit, (n+1)*len(f.all)), make([]float64, (n+1)*len(f.all))
	f.least, f.from = make([]float64, (n+1)*len(f.all)*len(f.widths)), make([]parent, (n+1)*len(f.all))
	for k := n - 1; k >= 0; k-- {
		least := math.Inf(1)
		for _, t := range s.types {
			least = min(least, s.layer(t, k))
		}
		f.work[k] = f.work[k+1] + least
	}
	f.rows = make([][][]float64, len(f.sets))
	for i := range f.rows {
		f.rows[i] = make([][]float64, n)
	}
	f.rear, f.front = table(W+1, n+1), append(f.front, table(W+1, n+1))
	for range W {
		if s.split {
			f.front = append(f.front, table(W+1, n+1))
		}
	}
	return f
}

func (s *serverBound) partsOf() parts {
	W := s.kind.Workers
	p := parts{pass: s.sum, ahead: make([][]float64, W+1), back: make([][]float64, W+1)}
	for r := 1; r <= W; r++ {
		p.ahead[r], p.back[r] = s.prefix(s.measured, r, leastForward), s.prefix(s.measured, r, s.leastBackward)
	}
	if p.half = p.back; !s.kind.Halves {
		return p
	}
	p.pass, p.half = make([][]float64, W+1), make([][]float64, W+1)
	for r := 1; r <= W; r++ {
		p.pass[r] = s.prefix(s.costs, r, func(c profile.Cost) float64 {
			if c.BackwardInputS != nil && c.BackwardWeightS != nil {
				return c.ForwardS + *c.BackwardInputS
			}
			return c.ForwardS + c.BackwardS
		})
		p.half[r] = s.prefix(s.measured, r, func(c profile.Cost) float64 {
			if c.BackwardInputS != nil && c.BackwardWeightS != nil {
				return min(*c.BackwardInputS, s.leastBackward(c))
			}
			return s.leastBackward(c)
		})
	}
	return p
}

func table(rows, columns int) [][]float64 {
	out := make([][]float64, rows)
	for i := range out {
		out[i] = make([]float64, columns)
	}
	return out
}

// leastForward is a forward, or one that keeps nothing.
func leastForward(c profile.Cost) float64 {
	bare, _ := c.Again()
	return min(c.ForwardS, bare)
}

// leastBackward is a backward whole, in halves or behind another forward.
func (b *bounder) leastBackward(c profile.Cost) float64 {
	_, again := c.Again()
	least := min(c.BackwardS, again)
	if b.kind.Halves && c.BackwardInputS != nil && c.BackwardWeightS != nil {
		least = min(least, *c.BackwardInputS+*c.BackwardWeightS)
	}
	return least
}

// exact is places that tell groups apart by how much of each is taken. It is nil where a group is one device, where the
// levels inside and outside make a difference, and where there are too many ways.
func (s *serverBound) exact() *places {
	inside := 0
	for i, l := range s.c.Levels {
		switch {
		case l.Rails > 0: // it makes a difference which devices of a group sum
			return nil
		case l.Size < 2 || i == s.level:
		case i > s.level:
			return nil
		default:
			inside++
		}
	}
	if s.size == 1 || inside > 1 || s.c.Nodes != nil || len(s.c.Devices) != s.kind.Workers {
		return nil
	}
	n := len(s.p.Layers)
	p := exactPlaces(len(s.c.Devices)/s.size, s.size, s.split)
	if p == nil {
		return nil
	}
	moves := 0
	for _, from := range p.all {
		moves += len(from.next)
	}
	if n*n*moves > maxMoves {
		return nil
	}
	return p
}
