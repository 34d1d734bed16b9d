package tune

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/tune/predict"
)

// score is a shape's estimate. Shapes that fit rank first, then shorter steps.
type score struct {
	stepS float64
	over  int64
}

func (a score) better(b score) bool {
	if a.over != b.over && (a.over > 0 || b.over > 0) {
		return a.over < b.over
	}
	return a.stepS < b.stepS*(1-1e-9)
}

// estimator estimates shapes of a space. It reuses its slices for every estimate.
type estimator struct {
	*space
	made        int // number of estimates
	actors      []actor
	first       []int // by stage: index of its first actor
	count       []int // by stage: number of its actors
	m           int
	ready       []float64 // [stage][micro]: when the forward's input is ready
	gradient    []float64 // [stage][micro]: when the backward's input is ready
	ahead, back []link    // by boundary and pair of actors; at most one pair for each micro-batch
	cuts        []cutLinks
	over        int64
	spared      int64 // bytes of every limit that estimates leave unused
	work        float64
	cores       int
	busiest     float64    // longest time that a link shared by several pairs of devices is busy
	noise       *sim.Noise // of all devices
}

// estimate returns the approximate time of a shape's first step, and by how many bytes its fullest device exceeds its
// memory. It simulates forwards and backwards without a queue of events. With round robin, the time equals the
// simulator's for one step if workers have their own cores and pairs of devices their own links
// (TestEstimateIsASimulation). If links or cores are shared, the estimate only makes sure that the step is no shorter
// than the total work of each. So it only ranks shapes; the simulator decides.
func (e *estimator) estimate(h *shape) (stepS float64, over int64) {
	if !e.playable(h) || !e.load(h) {
		return math.Inf(1), math.MaxInt64 / 2
	}
	return e.play(), e.over
}

func (e *estimator) score(h *shape) score {
	e.made++
	step, over := e.estimate(h)
	return score{step, max(0, over)}
}

// playable says whether a shape's step is small enough to simulate; other shapes get no estimate.
func (e *estimator) playable(h *shape) bool {
	visits := h.stages()
	if h.split {
		visits = h.used()
	}
	return predict.Playable(e.Batch/h.size, visits, h.stages())
}

// actor is one replica of a stage. With split micro-batches, one actor represents all replicas of a stage, because all
// of them do the same work at the same time.
type actor struct {
	stage, number, replicas int // the actor takes micro-batches `number`, `number` + `replicas`, ...
	device                  int
	mine, depth             int
	forward, backward       float64
	at                      int // position in the actor's list
	free                    float64
	flushS                  float64 // time of the update after the last backward
	sumS, tiedS             float64
}

type link struct{ latency, taken, free float64 }

// cutLinks says where a boundary's links are stored. Each micro-batch m is sent by one actor and received by one actor:
// on a side with n actors, by actor m mod n. So micro-batch m + period uses the same link as micro-batch m.
type cutLinks struct{ first, period int }

func (e *estimator) load(h *shape) bool {
	S := h.stages()
	e.m, e.over, e.work = e.Batch/h.size, 0, 0
	e.actors, e.first, e.count = e.actors[:0], e.first[:0], e.count[:0]
	if e.cores = 0; e.Cluster.SharesCores() {
		e.cores = e.Cluster.AllCores()
	}
	if e.noise == nil {
		noise := sim.NoiseOf(e.Profile, e.Cluster.Devices...)
		e.noise = &noise
	}
	devices, noise := h.devices(), e.noise
	for i, on := range devices {
		r, rows := len(on), h.rows(len(on))
		from, to := h.cuts[i], h.cuts[i+1]
		sum := 0.0
		slowest := actor{stage: i, replicas: 1, device: on[0], mine: e.m}
		e.first = append(e.first, len(e.actors))
		for k, d := range on {
			t := e.tables.of(e.Cluster.Devices[d], rows)
			if t == nil {
				return false
			}
			if r > 1 && k == 0 {
				sum = e.Cluster.AllReduceS(on, t.Gradients[to]-t.Gradients[from])
			}
			a := actor{stage: i, number: k, replicas: r, device: d, mine: (e.m - k + r - 1) / r, sumS: sum,
				flushS: span(t.update, from, to)}
			if h.split {
				a.number, a.replicas, a.mine = 0, 1, e.m
			}
			a.depth = min(h.depth[i], a.mine)
			forward, backward := t.time(from, to, h.again[i])
			packsForward, packsBackward := t.packing(from, to)
			a.forward, a.backward = noise.Usual(forward)+packsForward, noise.Usual(backward)+packsBackward
			e.work += float64(a.mine) * (a.forward + a.backward)
			if limit := e.Cluster.MemoryBytes(d); limit > 0 {
				e.over = max(e.over, t.Held(from, to, a.depth, h.again[i], e.replicated(r))+e.spared-limit)
			}
			if h.split {
				if k == 0 || a.forward+a.backward > slowest.forward+slowest.backward {
					slowest = a
				}
				continue
			}
			e.actors = append(e.actors, a)
		}
		if h.split {
			e.actors = append(e.actors, slowest)
		}
		e.count = append(e.count, len(e.actors)-e.first[i])
	}
	e.ready = sized(e.ready, S*e.m)
	e.gradient = sized(e.gradient, S*e.m)
	e.ahead, e.back, e.cuts = e.ahead[:0], e.back[:0], e.cuts[:0]
	for i := 0; i+1 < S; i++ {
		bytes := e.cutBytes(h, i+1)
		if h.split {
			bytes /= int64(max(len(devices[i]), len(devices[i+1])))
		}
		senders, receivers := e.count[i], e.count[i+1]
		e.cuts = append(e.cuts, cutLinks{len(e.ahead), senders / divisor(senders, receivers) * receivers})
		for m := range min(e.cuts[i].period, e.m) {
			from, to := e.actors[e.first[i]+m%senders].device, e.actors[e.first[i+1]+m%receivers].device
			e.ahead = append(e.ahead, newLink(e.Cluster, from, to, bytes))
			e.back = append(e.back, newLink(e.Cluster, to, from, bytes))
		}
	}
	e.busiest = e.shared(h, devices)
	e.tie(h, devices)
	for i := range S {
		for m := range e.m {
			e.ready[i*e.m+m], e.gradient[i*e.m+m] = -1, -1
		}
	}
	for m := range e.m {
		e.ready[m] = 0
	}
	return true
}

func newLink(c *cluster.Cluster, from, to int, bytes int64) link {
	latency, taken := c.Transfer(from, to, bytes)
	return link{latency: latency, taken: taken}
}

// cutBytes returns the bytes of one micro-batch that cross the cut before stage i.
func (s *space) cutBytes(h *shape, i int) int64 {
	if t := s.tables.of(s.Cluster.Devices[h.order[0]], h.size); t != nil {
		return t.crosses[h.cuts[i]]
	}
	return 0
}

func sized[T any](list []T, n int) []T {
	if cap(list) < n {
		return make([]T, n)
	}
	return list[:n]
}

// play advances every actor as far as possible until all are done, and returns the step's time. It returns infinity if
// they block each other.
func (e *estimator) play() float64 {
	left := len(e.actors)
	for i := range e.actors {
		if e.actors[i].mine == 0 {
			left--
		}
	}
	for left > 0 {
		moved := false
		for i := range e.actors {
			before := e.actors[i].at
			if e.advance(i); e.actors[i].at > before {
				moved = true
				if e.actors[i].at == 2*e.actors[i].mine {
					left--
				}
			}
		}
		if !moved {
			return math.Inf(1)
		}
	}
	step := 0.0
	for i := range e.first {
		last := 0.0
		group := e.actors[e.first[i] : e.first[i]+e.count[i]]
		for _, a := range group {
			last = max(last, a.free)
		}
		step = max(step, last+group[0].sumS+group[0].tiedS+group[0].flushS)
	}
	if e.cores > 0 && e.cores < len(e.actors) {
		step = max(step, e.work/float64(e.cores))
	}
	return max(step, e.busiest)
}

// tie makes stages wait for the gradients of shared parameters. Each replica waits for the replica of the same number,
// modulo the other stage's replicas, as in package sim.
func (e *estimator) tie(h *shape, devices [][]int) {
	for l, layer := range e.Profile.Layers {
		if layer.TiedTo < 0 {
			continue
		}
		ends := [2]int{h.stageOf(layer.TiedTo), h.stageOf(l)}
		if ends[0] == ends[1] {
			continue
		}
		for k, i := range ends {
			longest, other := 0.0, devices[ends[1-k]]
			for r, d := range devices[i] {
				longest = max(longest, e.Cluster.TransferS(other[r%len(other)], d, layer.TiedBytes))
			}
			if first := &e.actors[e.first[i]]; first.tiedS < longest {
				first.tiedS = longest
			}
		}
	}
}

// shared returns how long the busiest shared link (uplink, bus) is in use in a step.
func (e *estimator) shared(h *shape, devices [][]int) float64 {
	if !slices.ContainsFunc(e.Cluster.Levels, func(l cluster.Level) bool { return l.Uplinks || l.Shared || l.Rails > 0 }) {
		return 0
	}
	taken, busiest := map[[2]int]float64{}, 0.0
	pass := func(from, to int, bytes float64) {
		each := e.Cluster.ByteS(from, to)
		for _, link := range e.Cluster.Links(from, to) {
			taken[link] += each * bytes
			busiest = max(busiest, taken[link])
		}
	}
	for i := 0; i+1 < h.stages(); i++ {
		senders, receivers := devices[i], devices[i+1]
		r, q, all := len(senders), len(receivers), float64(e.m)*float64(e.cutBytes(h, i+1))
		if !h.split {
			period := r / divisor(r, q) * q
			for m := range period {
				pass(senders[m%r], receivers[m%q], all/float64(period))
				pass(receivers[m%q], senders[m%r], all/float64(period))
			}
			continue
		}
		for a, from := range senders {
			for b := max(0, a*q/r-1); b < min(q, (a+1)*q/r+2); b++ { // no other receiver has rows of this sender
				part := min(float64(a+1)/float64(r), float64(b+1)/float64(q)) -
					max(float64(a)/float64(r), float64(b)/float64(q))
				if part > 1e-9 {
					pass(from, receivers[b], all*part)
					pass(receivers[b], from, all*part)
				}
			}
		}
	}
	return busiest
}

// advance plays actor x's list from its current position: as many forwards as its depth, then backwards and forwards in
// turn, then the remaining backwards.
func (e *estimator) advance(x int) {
	a := &e.actors[x]
	S := len(e.first)
	for a.at < 2*a.mine {
		j, forward := a.at, true
		if q := a.at - a.depth; q >= 0 {
			steady := 2 * (a.mine - a.depth)
			switch {
			case q >= steady:
				j, forward = q-steady+a.mine-a.depth, false
			case q%2 == 0:
				j, forward = q/2, false
			default:
				j = a.depth + q/2
			}
		}
		micro := a.number + j*a.replicas
		slot := a.stage*e.m + micro
		if forward {
			if e.ready[slot] < 0 {
				return
			}
			a.free = max(a.free, e.ready[slot]) + a.forward
			if a.stage+1 == S {
				e.gradient[slot] = a.free
			} else {
				e.ready[slot+e.m] = e.between(e.ahead, a.stage, micro).pass(a.free)
			}
		} else {
			if e.gradient[slot] < 0 {
				return
			}
			a.free = max(a.free, e.gradient[slot]) + a.backward
			if a.stage > 0 {
				e.gradient[slot-e.m] = e.between(e.back, a.stage-1, micro).pass(a.free)
			}
		}
		a.at++
	}
}

// between returns the link that a micro-batch takes over a boundary.
func (e *estimator) between(links []link, boundary, micro int) *link {
	cut := e.cuts[boundary]
	return &links[cut.first+micro%cut.period]
}

// divisor returns the greatest common divisor of two numbers.
func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// pass sends a message over the link and returns the time of its arrival. The message is ready at the time `now`.
func (l *link) pass(now float64) float64 {
	start := max(now, l.free)
	l.free = start + l.taken
	return l.free + l.latency
}
