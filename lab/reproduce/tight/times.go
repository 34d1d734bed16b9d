package tight

import (
	"cmp"
	"math"
	"slices"
)

// times computes the least step of a layout whose depths K_i are only known to lie in ranges.
//
// Nodes are the forwards and backwards of each device. A device's forwards come in order, and so do its backwards. The
// depth of its stage lies between lo and hi. So its k-th backward comes after all forwards before the (k+lo)-th, and
// its (k+hi)-th forward comes after its k-th backward. A message begins when its sender has ended and the previous
// message between the same two devices has left. A stage ends with the update, and with the part of the gradient sum
// that backwards cannot hide. The longest chain of computations and messages from the beginning of a stage's step to
// its end is a lower bound of the step. If lo equals hi for every stage, this bound leaves out only the waits for links
// that several pairs of devices use.
//
// A link between groups carries its messages one at a time. From the time when a message is ready, the link has to
// carry this message and all that are ready later. After the last of them, a micro-batch still has to pass through the
// later stages and back, until stage 0 ends its step.
type times struct {
	e           *every
	stages      []stageTimes
	split       bool
	micros      int
	lo, hi      []int
	ports       [2 * mostGroups][]passing // messages out of each group, and into each group
	first       bool                      // the step of stage 0 is computed
	perPort     bool                      // messages between groups queue for ports
	oneWay      bool                      // a port carries one message at a time, in or out
	rear, front []float64
}

// stageTimes holds a stage's devices, its times of a micro-batch, and the state of one computation.
type stageTimes struct {
	on                []int
	forward, backward float64
	endS              float64 // seconds of the update, and of the gradient sum after the last backward
	together          bool    // replicas sum their gradients, so they end a step together
	// `there` has the messages from the previous stage to this one, and `back` has the messages from this stage to the
	// previous one. Both are indexed by a device of the previous stage, and then by a device of this stage.
	there, back [][]message

	devices []deviceTimes
}

type message struct {
	used             bool
	latency, takes   float64
	free             float64
	fromGroup, group int // groups of the sender and of the receiver
}

// deviceTimes holds when the forwards and backwards of a device end, as far as they are computed.
type deviceTimes struct {
	forwards, backwards []float64
	n                   int // number of the device's micro-batches
	begun, returned     float64
}

// passing is a message on a port. It can be sent from the time `ready` on, and occupies the port for `takes` seconds.
// The step ends at least `tail` seconds after the message has passed.
type passing struct{ ready, takes, tail float64 }

func (e *every) timesOf(l layout) *times {
	t := &times{e: e, split: l.split, micros: e.batch / l.m}
	if e.groups > 1 {
		link := e.c.Levels[1]
		t.perPort, t.oneWay = link.Uplinks && link.Rails == 0, !link.FullDuplex
	}
	var used taken
	for i, h := range l.stages {
		st := stageTimes{on: e.devicesOf(h, used)}
		used = used.and(h.in)
		costs := e.costs[l.rows(len(st.on))]
		params := int64(0)
		for k := h.first; k < h.end; k++ {
			st.forward, st.backward = st.forward+costs[k].ForwardS, st.backward+costs[k].BackwardS
			st.endS += e.p.Layers[k].UpdateS
			params += e.p.Layers[k].ParameterBytes + e.p.Layers[k].TiedBytes
		}
		if len(st.on) > 1 && params > 0 {
			sum := e.c.AllReduceS(st.on, params)
			if !e.c.Crowded(2) {
				sum = max(0, sum-st.backward)
			}
			st.endS, st.together = st.endS+sum, true
		}
		r := len(st.on)
		for a := range r {
			d := deviceTimes{n: t.micros}
			if !l.split {
				d.n = (t.micros - a + r - 1) / r
			}
			d.forwards, d.backwards = make([]float64, 0, d.n), make([]float64, 0, d.n)
			st.devices = append(st.devices, d)
		}
		if i > 0 {
			before := t.stages[i-1].on
			st.there = t.messages(before, st.on, e.p.CutBytes(e.costs[l.m], h.first-1), false)
			st.back = t.messages(before, st.on, e.p.GradientBytes(e.costs[l.m], h.first-1), true)
		}
		t.stages = append(t.stages, st)
	}
	t.goOn()
	return t
}

// messages returns the messages of a cut between the devices of two stages. If micro-batches are split, a message has
// the rows that both devices hold. Its size is counted as one byte less, because sizes of slices are rounded.
func (t *times) messages(before, after []int, bytes int64, back bool) [][]message {
	out := make([][]message, len(before))
	for a, from := range before {
		for b, to := range after {
			one, q, r := message{used: true}, len(before), len(after)
			n := bytes
			if t.split {
				overlap := min((a+1)*r, (b+1)*q) - max(a*r, b*q) // in units of 1 / (q r) of the rows
				one.used = overlap > 0
				n = max(0, bytes*int64(max(0, overlap))/int64(q*r)-1)
			}
			x, y := from, to
			if back {
				x, y = to, from
			}
			one.latency, one.takes = t.e.c.Transfer(x, y, n)
			one.fromGroup, one.group = x/t.e.size, y/t.e.size
			out[a] = append(out[a], one)
		}
	}
	return out
}

// goOn computes rear and front. rear[i] is the least time from the arrival of an activation in stage i to the end of
// stage 0. front[i] is the least time from the arrival of a gradient in stage i to the end of stage 0.
func (t *times) goOn() {
	S := len(t.stages)
	t.rear, t.front = make([]float64, S+1), make([]float64, S+1)
	t.front[0] = t.stages[0].backward + t.stages[0].endS
	for i := 1; i < S; i++ {
		t.front[i] = t.stages[i].backward + quickest(t.stages[i].back) + t.front[i-1]
	}
	for i := range t.stages {
		way := t.front[S-1]
		for j := i; j < S; j++ {
			if way += t.stages[j].forward; j > i {
				way += quickest(t.stages[j].there)
			}
		}
		t.rear[i] = way
	}
}

// quickest returns the least time of any message of a cut.
func quickest(all [][]message) float64 {
	least := math.Inf(1)
	for _, row := range all {
		for _, one := range row {
			if one.used {
				least = min(least, one.latency+one.takes)
			}
		}
	}
	return least
}

// least returns the least step under any depths within the ranges. It returns infinity if no such depths can be
// executed. It stops as soon as the step is `enough` or longer.
func (t *times) least(lo, hi []int, enough float64) float64 {
	t.lo, t.hi = lo, hi
	most := 0.0
	for s := range t.stages {
		if most = max(most, t.from(s)); most >= enough {
			break
		}
	}
	return most
}

// from returns the longest chain of computations and messages from the beginning of a stage's step to its end. It is
// infinity if the depths cannot be executed. For stage 0, if all its devices end the step together, from returns the
// larger of this chain and the result of queued.
func (t *times) from(source int) float64 {
	t.first = source == 0
	for i := range t.ports {
		t.ports[i] = t.ports[i][:0]
	}
	for i := range t.stages {
		st := &t.stages[i]
		for a := range st.devices {
			d := &st.devices[a]
			d.forwards, d.backwards, d.begun = d.forwards[:0], d.backwards[:0], math.Inf(-1)
			if i == source && (a == 0 || st.together) {
				d.begun = 0
			}
		}
		for _, all := range [][][]message{st.there, st.back} {
			for a := range all {
				for b := range all[a] {
					all[a][b].free = math.Inf(-1)
				}
			}
		}
	}
	for on := true; on; {
		on = false
		for i := range t.stages {
			for a := range t.stages[i].devices {
				for t.forward(i, a) {
					on = true
				}
			}
		}
		for i := len(t.stages) - 1; i >= 0; i-- {
			for a := range t.stages[i].devices {
				for t.backward(i, a) {
					on = true
				}
			}
		}
	}
	end := 0.0
	for i := range t.stages {
		for a, d := range t.stages[i].devices {
			if len(d.backwards) < d.n {
				return math.Inf(1)
			}
			if i == source && d.n > 0 && (a == 0 || t.stages[i].together) {
				end = max(end, d.backwards[d.n-1]+t.stages[i].endS)
			}
		}
	}
	if source == 0 && (t.stages[0].together || len(t.stages[0].on) == 1) {
		end = max(end, t.queued())
	}
	return end
}

// forward computes a device's next forward. It returns false if none is left, or if a time for which it waits is not
// known yet.
func (t *times) forward(i, a int) bool {
	st, hi := &t.stages[i], t.hi[i]
	d := &st.devices[a]
	k := len(d.forwards)
	if k == d.n || k >= hi && len(d.backwards) <= k-hi {
		return false
	}
	start := d.begun
	if k > 0 {
		start = max(d.forwards[k-1], d.begun+float64(k)*st.forward+float64(max(0, k-hi+1))*st.backward)
	}
	if k >= hi {
		start = max(start, d.backwards[k-hi], d.returned+float64(k-hi+1)*st.backward+float64(k-hi)*st.forward)
	}
	if i > 0 {
		arrives, ok := t.arrival(i-1, st.there, i, a, k, func(b int) []float64 { return t.stages[i-1].devices[b].forwards })
		if !ok {
			return false
		}
		start = max(start, arrives)
	}
	if k == 0 {
		d.begun = max(d.begun, start)
	}
	d.forwards = append(d.forwards, start+st.forward)
	return true
}

// backward computes a device's next backward. It returns false if none is left, or if a time for which it waits is not
// known yet.
func (t *times) backward(i, a int) bool {
	st, lo, hi := &t.stages[i], t.lo[i], t.hi[i]
	d := &st.devices[a]
	k := len(d.backwards)
	if k == d.n {
		return false
	}
	done := min(d.n, k+lo) // number of forwards before this backward
	if len(d.forwards) < done {
		return false
	}
	start := max(d.forwards[done-1], d.begun+float64(done)*st.forward+float64(k)*st.backward)
	if k > 0 {
		start = max(start, d.backwards[k-1],
			d.returned+float64(k)*st.backward+float64(max(0, done-hi))*st.forward)
	}
	if i+1 < len(t.stages) {
		arrives, ok := t.arrival(i+1, t.stages[i+1].back, i, a, k,
			func(b int) []float64 { return t.stages[i+1].devices[b].backwards })
		if !ok {
			return false
		}
		start = max(start, arrives)
	}
	if k == 0 {
		d.returned = start
	}
	d.backwards = append(d.backwards, start+st.backward)
	return true
}

// arrival returns the time at which device a of stage i has its k-th input from stage `from`. It also records the
// messages at their ports. ends(b) returns the times at which the computations of device b of stage `from` end.
func (t *times) arrival(from int, all [][]message, i, a, k int, ends func(b int) []float64) (at float64, ok bool) {
	others := len(t.stages[from].on)
	between := func(b int) *message {
		if from < i {
			return &all[b][a]
		}
		return &all[a][b]
	}
	first, last, local := 0, others, k
	if !t.split {
		micro := k*len(t.stages[i].on) + a
		first, local = micro%others, micro/others
		last = first + 1
	}
	for b := first; b < last; b++ {
		if between(b).used && len(ends(b)) <= local {
			return 0, false
		}
	}
	at = math.Inf(-1)
	for b := first; b < last; b++ {
		one := between(b)
		if !one.used {
			continue
		}
		ready := ends(b)[local]
		start := max(ready, one.free)
		one.free = start + one.takes
		at = max(at, one.free+one.latency)
		if t.first && t.perPort && one.fromGroup != one.group {
			tail := one.latency
			if from < i {
				tail += t.rear[i]
			} else {
				tail += t.front[i]
			}
			into := 2*one.group + 1
			if t.oneWay {
				into--
			}
			for _, port := range []int{2 * one.fromGroup, into} {
				t.ports[port] = append(t.ports[port], passing{start, one.takes, tail})
			}
		}
	}
	return at, true
}

// queued returns the least step that the ports' messages allow.
func (t *times) queued() float64 {
	most := 0.0
	for _, all := range t.ports {
		slices.SortFunc(all, func(a, b passing) int { return cmp.Compare(b.ready, a.ready) })
		sum, tail := 0.0, math.Inf(1)
		for _, one := range all {
			sum, tail = sum+one.takes, min(tail, one.tail)
			most = max(most, one.ready+sum+tail)
		}
	}
	return most
}
