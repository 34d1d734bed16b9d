package tight

import "math"

// mostGroups is the most groups of devices that a layout can have.
const mostGroups = 4

// layout holds stages with their devices. `m` is the size of a micro-batch. `split` means that replicas divide each
// micro-batch. `least` is a lower bound of the step, in seconds.
type layout struct {
	stages []held
	m      int
	split  bool
	least  float64
}

// held is a stage: its layers, and how many devices of each group it has.
type held struct {
	first, end int
	in         taken
}

func (h held) devices() int { return h.in.sum() }

// taken holds a number of devices for each group.
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

// rows returns how many samples of a micro-batch a replica computes, if its stage has r replicas. If replicas get
// different numbers, it returns the greatest.
func (l layout) rows(r int) int {
	if l.split {
		return (l.m + r - 1) / r
	}
	return l.m
}

// most returns how many micro-batches a device computes in a step, if its stage has r devices. If the devices get
// different numbers, it returns the greatest.
func (e *every) most(l layout, r int) float64 {
	if l.split {
		return float64(e.batch / l.m)
	}
	return float64((e.batch/l.m + r - 1) / r)
}

// passes returns how many seconds a micro-batch's forward and backward take in a stage. If backwards are split in
// halves, the result `there` leaves out the second half, which no other stage waits for.
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

// ends returns how many seconds a stage takes after its last backward. This time is spent on the update, and on the
// part of the gradient sum that this backward cannot hide.
func (e *every) ends(h held, l layout) float64 {
	_, pass, _ := e.passes(h, l)
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
	return left + update
}

// work returns how many seconds a device of a stage is busy in a step at least, including the time that `ends` returns.
func (e *every) work(h held, l layout) (float64, bool) {
	_, pass, ok := e.passes(h, l)
	return e.most(l, h.devices())*pass + e.ends(h, l), ok
}

// way returns, for each layer, how many seconds a micro-batch takes at least from this layer to the last one and back.
// It assumes that a stage has at most `devices` devices.
func (e *every) way(l layout, devices int) []float64 {
	key := [3]int{devices, l.m, 0}
	if l.split {
		key[2] = 1
	}
	if way, ok := e.ways[key]; ok {
		return way
	}
	if e.ways == nil {
		e.ways = map[[3]int][]float64{}
	}
	n := len(e.p.Layers)
	way := make([]float64, n+1)
	for k := n - 1; k >= 0; k-- {
		least := math.Inf(1)
		for r := 1; r <= max(1, devices); r++ {
			one := held{first: k, end: k + 1}
			one.in[0] = r
			if there, _, ok := e.passes(one, l); ok {
				least = min(least, there)
			}
		}
		if math.IsInf(least, 1) {
			least = 0
		}
		way[k] = way[k+1] + least
	}
	e.ways[key] = way
	return way
}

// devicesOf returns a stage's devices. `used` has the number of devices of each group that other stages already have.
func (e *every) devicesOf(h held, used taken) (on []int) {
	for g, n := range h.in {
		for i := range n {
			on = append(on, g*e.size+used[g]+i)
		}
	}
	return on
}

// least returns a lower bound, in seconds, of the step of all layouts that begin with l's stages. It follows fillBound
// in package bound, for given stages. Each device does its work, gradient sum and update. Before a device's first
// forward, earlier stages must end their previous step and compute their first forward. After a device's last backward,
// earlier stages compute their last backward. Between the first forward and the first backward of a device, a
// micro-batch goes through the later stages and back. Another micro-batch does the same between the device's last
// forward and its last backward. Each message goes over the fastest link between its two stages. A group's link carries
// all bytes that leave or enter the group, over all cuts.
func (e *every) least(l layout) float64 {
	most, front, gone := 0.0, 0.0, 0.0
	var out, in [mostGroups]float64
	var fronts, ways []float64 // by stage: seconds before its first forward; seconds of a micro-batch to it and back
	used := taken{}
	for i, h := range l.stages {
		there, _, _ := e.passes(h, l)
		if i > 0 {
			bytes := float64(e.p.CutBytes(e.costs[l.m], h.first-1))
			message := 2 * e.message(l.stages[i-1], h, l, bytes)
			front, gone = front+message, gone+message
			e.crossing(l.stages[i-1], h, l, bytes, &out, &in)
		}
		gone += there
		fronts, ways, used = append(fronts, front), append(ways, gone), used.and(h.in)
		front = there + max(front, e.ends(h, l))
	}
	if last := l.stages[len(l.stages)-1]; last.end < len(e.p.Layers) {
		gone += e.way(l, len(e.c.Devices)-used.sum())[last.end]
	}
	for i, h := range l.stages {
		there, pass, _ := e.passes(h, l)
		X, rear, ends, forward := e.most(l, h.devices()), gone-ways[i], e.ends(h, l), 0.0
		for _, c := range e.costs[l.rows(h.devices())][h.first:h.end] {
			forward += c.ForwardS
		}
		back, half := pass-forward, there-forward
		most = max(most, X*pass+ends, fronts[i]+X*there, forward+rear+max(fronts[i]+X*half, X*back+ends),
			X*forward+rear+half+max(fronts[i], ends))
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

// message returns how many seconds a micro-batch takes at least from one stage to the next. If replicas split
// micro-batches, message counts only the smallest piece of a micro-batch.
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

// crossing adds the bytes that leave and enter each group at a cut: outputs, and gradients in the other direction.
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
	for g := range e.groups { // a group receives rows if its share grows from a to b, and otherwise sends
		rows := float64(l.m) * math.Abs(float64(a.in[g])/float64(r)-float64(b.in[g])/float64(q))
		if l.m%r != 0 || l.m%q != 0 {
			rows = max(0, rows-2) // slices have whole rows, so up to two rows fewer may cross
		}
		sent := bytes * float64(M) * rows / float64(l.m)
		out[g], in[g] = out[g]+sent, in[g]+sent
	}
}

// group returns the group of the n-th device of a stage.
func (h held) group(n int) int {
	for g, have := range h.in {
		if n -= have; n < 0 {
			return g
		}
	}
	return 0
}
