package bound

import (
	"math"

	"github.com/millrace-ml/millrace/profile"
)

// fillBound extends serverBound: it follows a micro-batch through the stages of a path one by one. serverBound uses the
// least time that any stages could take instead.
//
// Fill. Take stages b..i with b before i. Stage b begins a step after its own update in the previous step. Then the
// first micro-batch for a device of stage i goes forward through b..i-1 and over the cuts between them. The device does
// its work. Its last micro-batch goes back the same way, and then b sums its gradients and updates. Let c be the
// forward and backward of a stage on its replicas' rows and t the transfer over a cut. Let e be the update plus the
// part of the gradient sum that is left after the last backward (see the method left). Then
//
//	step >= sum of c over b..i-1 + e of b + 2 sum of t over the cuts from b to i + work of i
//
// for every b. fill is the maximum over b of the right side without the last cut and without the work of i. One more
// stage gives
//
//	fill' = c + max(fill + 2 t, e)
//
// With split backwards, c and work leave out the second halves, which can be postponed.
//
// Round robin. Let w devices take micro-batches round robin. The last of the w devices to begin gets its first
// micro-batch after w micro-batches have passed an earlier stage of q devices. By then one of the q devices has done
// ceil(w/q) micro-batches, which adds ceil(w/q) - 1 forwards. The same holds, with backwards, for the device that ends
// first. fill(w) is fill for such a device, so
//
//	fill'(w) = c + max(fill(w) + 2 t, max(fill(1) + 2 t, e) + (ceil(w/q) - 1) max(f, b))
//
// Here work is the work of floor(M/r) micro-batches. M mod r devices have one micro-batch more; for the last of these
// devices, work includes it. If a group has one link, w micro-batches pass it one after the other, which adds (w-1) a /
// rate.
//
// Return. Before its first backward, a device waits until a micro-batch has gone from its stage to the last one and
// back. This time is called rear. The device's backwards follow. In addition, its last backward comes after all its
// forwards and after rear. With X micro-batches
//
//	step >= fill + 2 t + max(f + rear + X b, X f + rear + b)
//
// The same holds with e in place of fill + 2 t. tail is fill + 2 t + f + X b: it leaves out rear and the cut after the
// stage. rear is a minimum over all ways to divide the later layers into stages on the remaining devices, such that
// each device does its own work within T, the step time that is tested.
//
// If micro-batches are split, a device in a stage of q gets its slice from the r devices before it in at most ceil(r/q)
// + 1 pieces. So the largest piece is at least 1 / (q (ceil(r/q) + 1)) of the micro-batch. The device sends the
// gradient of that piece back to its sender.
//
// Cuts. A link begins to carry the data of a cut after the time fill. The last of the X micro-batches that cross it
// then goes through all later layers and back:
//
//	T >= fill + (X+1) a / rate + rear
//
// This holds for the link of a group. If each pair of devices has its own link, it holds for the pair that carries
// most: X / (r q) between a stage of r and one of q, in whole micro-batches if these are not split. With split the last
// slice comes back without others, so X takes the place of X+1. If the size of the last stage is known (place.last), a
// pair carries more (see pair). With round robin, a pair carries every lcm(q, r)-th micro-batch. With split, the first
// devices of both stages share as many rows as the smaller slice has. A path may be within one group, then in several,
// and then within another. It has sent everything over the first group's link at some cut; exit keeps the fewest bytes
// of those cuts.
//
// Slices. With split there are three kinds of fill, each from a device of one stage to a device of the next. First,
// every device waits for its whole slice; over a group's single link, all bytes of the slice pass that link there and
// back. Second, the first device of a stage gets its slice from the first device of the stage before. Third, over a
// single link some device gets the last slice. By then a whole micro-batch has passed the link, and the device sends
// its own slice back.
//
// Ties. Stages that share parameters wait for each other's gradients, at least for the time of the fastest link.
//
// Compare all paths to a layer that have taken the same devices (places). The path with the least fill allows
// everything that the others allow. So it is enough to keep the least fill(w) for each w.
type fillBound struct {
	*serverBound
	*places
	widths []int     // the numbers w for which fill(w) is kept; with split the kinds of fill
	least  []float64 // fill by layer, place and width
	from   []parent  // the previous stage on the path with the least fill(1), by layer and place
	at     parent
	before []float64 // fill plus the time of the cut before the stage, by width
	out    []exit    // by layer and place
	// tail, by layer and place, is the time that the last stage adds to rear and to the cut after that stage.
	tail []float64
	parts
	lines

	work  []float64     // by first layer: least work of that layer and all later ones, summed over devices
	rear  [][]float64   // by number of devices and first layer: least time through it and all later layers, and back
	front [][][]float64 // rear plus the cut before the first layer, by the size of the stage before (see lasts)

	rows [][][]float64 // results of the method `left`, by set of devices and first layer
}

// parts holds prefix sums over layers of minimum times, by number of replicas. `pass` is a micro-batch's forward and
// backward; with split backwards only the backward's first half counts. `ahead` is the forward, `back` the backward,
// and `half` the backward's first half.
type parts struct{ pass, ahead, back, half [][]float64 }

// exit records how a path left the group that it was in last. `fill` is the fill at that time. `bytes` is the fewest
// bytes of any cut since then. Each field is a minimum over all paths, independent of the other field.
type exit struct{ fill, bytes float64 }

// parent is the previous position of a path.
type parent struct{ layer, place, set int }

// maxFillStates limits (layers times devices) squared. maxMoves limits layers squared times moves.
const maxFillStates, maxMoves = 1 << 22, 1 << 27

// If micro-batches are split, there are three kinds of fill instead of the widths. `every` holds for every device of a
// stage, `named` for its first device, and `some` for some unknown device.
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

// leastForward returns the shorter of the times of a normal forward and of a forward that keeps nothing, in seconds.
func leastForward(c profile.Cost) float64 {
	bare, _ := c.Again()
	return min(c.ForwardS, bare)
}

// leastBackward returns the shortest time of a backward: whole, in halves, or after a recompute.
func (b *bounder) leastBackward(c profile.Cost) float64 {
	_, again := c.Again()
	least := min(c.BackwardS, again)
	if b.kind.Halves && c.BackwardInputS != nil && c.BackwardWeightS != nil {
		least = min(least, *c.BackwardInputS+*c.BackwardWeightS)
	}
	return least
}

// exact returns places that count the devices taken in each group. If there are too many moves, it does not distinguish
// places by the size of the last stage. If there are still too many moves or places, it returns nil. It also returns
// nil if a group is one device, if the plans leave some devices out, or if rails, nodes, or levels inside or outside
// the groups make a difference.
func (s *serverBound) exact() *places {
	inside := 0
	for i, l := range s.c.Levels {
		switch {
		case l.Rails > 0: // the time of a sum depends on which devices of a group take part
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
	for _, lasts := range []bool{true, false} { // without the last stage's size there are fewer places
		if lasts && !s.split {
			continue
		}
		p, moves := exactPlaces(len(s.c.Devices)/s.size, s.size, lasts), 0
		if p == nil {
			continue
		}
		for _, from := range p.all {
			moves += len(from.next)
		}
		if n*n*moves <= maxMoves {
			return p
		}
	}
	return nil
}
