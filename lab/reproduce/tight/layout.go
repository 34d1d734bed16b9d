package tight

import "math"

// mostGroups bounds the groups of devices that are told apart.
const mostGroups = 4

// layout is stages on devices.
type layout struct {
	stages []held
	m      int
	split  bool
	least  float64
}

// held is a stage: its layers, and its devices by group.
type held struct {
	first, end int
	in         taken
}

func (h held) devices() int { return h.in.sum() }

// taken is how many devices of each group.
type taken [mostGroups]int

func (t taken) sum() (n int) {
	for _, one := range t {
		n += one
	}
	return n
}

func (t taken) and(more taken) taken {
	for g, n := range more {
		t[g] += n
	}
	return t
}

// rows that a replica of a stage has of a micro-batch, at most.
func (l layout) rows(r int) int {
	if l.split {
		return (l.m + r - 1) / r
	}
	return l.m
}

// most is the micro-batches that a device of a stage of r has, at most.
func (e *every) most(l layout, r int) float64 {
	if l.split {
		return float64(e.batch / l.m)
	}
	return float64((e.batch/l.m + r - 1) / r)
}

// passes is what a micro-batch's forward and backward take in a stage. With halves the second is not waited for.
func (e *every) passes(h held, l layout) (there, all float64, ok bool) {
	costs := e.costs[l.rows(h.devices())]
	if costs == nil {
		return 0, 0, false
	}
	for _, c := range costs[h.first:h.end] {
		all += c.ForwardS + c.BackwardS
		if there += c.ForwardS; e.halves && c.BackwardInputS != nil {
			there += min(*c.BackwardInputS, c.BackwardS)
		} else {
			there += c.BackwardS
		}
	}
	return there, all, true
}

// work is what a stage's device computes in a step, at least, and what then is left of its sum and its update.
func (e *every) work(h held, l layout) (float64, bool) {
	_, pass, ok := e.passes(h, l)
	update, bytes := 0.0, int64(0)
	for _, one := range e.p.Layers[h.first:h.end] {
		update, bytes = update+one.UpdateS, bytes+one.ParameterBytes+one.TiedBytes
	}
	left := 0.0
	if r := h.devices(); r > 1 {
		if left = e.c.AllReduceS(e.devicesOf(h, taken{}), bytes); !e.c.Crowded(2) {
			left = max(0, left-pass)
		}
	}
	return e.most(l, h.devices())*pass + left + update, ok
}

// devicesOf is a stage's devices where so many of each group are taken.
func (e *every) devicesOf(h held, used taken) (on []int) {
	for g, n := range h.in {
		for i := range n {
			on = append(on, g*e.size+used[g]+i)
		}
	}
	return on
}

// least is a step that a layout cannot beat. Each device has its work, the sum and update behind it. The first
// micro-batch of a device comes through the stages in front, and the last goes back, each over its fastest link. And a
// group's link carries all that goes out of the group, at all cuts together.
func (e *every) least(l layout) float64 {
	most, front := 0.0, 0.0
	var out, in [mostGroups]float64
	for i, h := range l.stages {
		there, pass, _ := e.passes(h, l)
		if i > 0 {
			bytes := float64(e.p.CutBytes(e.costs[l.m], h.first-1))
			front += 2 * e.message(l.stages[i-1], h, l, bytes)
			e.crossing(l.stages[i-1], h, l, bytes, &out, &in)
		}
		work, _ := e.work(h, l)
		x := pass
		if e.halves {
			x = there
		}
		most = max(most, work, front+e.most(l, h.devices())*x)
		front += there
	}
	if e.groups == 1 {
		return most
	}
	if link := e.c.Levels[1]; link.Uplinks && link.Rails == 0 {
		for g := range e.groups {
			if !link.FullDuplex {
				out[g], in[g] = out[g]+in[g], out[g]+in[g]
			}
			most = max(most, max(out[g], in[g])/link.BandwidthBytesPerSecond)
		}
	}
	return most
}

// message is what a micro-batch, or the least piece of one that is split, takes from a stage to the next.
func (e *every) message(a, b held, l layout, bytes float64) float64 {
	if q := b.devices(); l.split {
		bytes /= float64(max(a.devices(), q*((a.devices()+q-1)/q+1)))
	}
	link := e.c.Levels[0]
	apart := e.groups > 1
	for g := range e.groups {
		apart = apart && (a.in[g] == 0 || b.in[g] == 0)
	}
	if apart {
		link = e.c.Levels[1]
	}
	return link.LatencyS + bytes/link.BandwidthBytesPerSecond
}

// crossing adds the bytes that go out of each group and into it over a cut: outputs, and their gradients, which go the
// other way.
func (e *every) crossing(a, b held, l layout, bytes float64, out, in *[mostGroups]float64) {
	if e.groups == 1 {
		return
	}
	r, q, M := a.devices(), b.devices(), e.batch/l.m
	if !l.split {
		for i := range M {
			if from, to := a.group(i%r), b.group(i%q); from != to {
				out[from], in[from] = out[from]+bytes, in[from]+bytes
				out[to], in[to] = out[to]+bytes, in[to]+bytes
			}
		}
		return
	}
	for g := range e.groups { // a group gets what it has more of behind the cut, or gives what it has less
		rows := float64(l.m) * math.Abs(float64(a.in[g])/float64(r)-float64(b.in[g])/float64(q))
		if l.m%r != 0 || l.m%q != 0 {
			rows = max(0, rows-2) // slices are of whole rows
		}
		sent := bytes * float64(M) * rows / float64(l.m)
		out[g], in[g] = out[g]+sent, in[g]+sent
	}
}

// group is that of the n-th device of a stage.
func (h held) group(n int) int {
	for g, have := range h.in {
		if n -= have; n < 0 {
			return g
		}
	}
	return 0
}
