package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/sim/memory"
)

// Ports holds the loads that messages and sums of gradients put on ports.
type Ports struct {
	// Message returns the loads that a message between two workers puts on ports, if it occupies its links for linkS.
	Message func(from, to int, bytes int64, linkS float64) []cluster.Load
	Sums    [][]cluster.Load // by stage: the loads of a sum of gradients
}

// portsOf returns the ports that a plan's transfers share. It is nil if no level has contention, if a device streams,
// or if no port has two users. A stage's sum is one user. The messages between two workers in one direction are one
// user too. At a port where messages go one after the other anyway, all messages are a single user.
func portsOf(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, devices []int, costs *Costs) *Ports {
	if !c.Contends() || costs.Streams != nil {
		return nil
	}
	out := &Ports{Sums: make([][]cluster.Load, len(pl.Stages)),
		Message: func(from, to int, bytes int64, linkS float64) []cluster.Load {
			return c.MessageLoads(devices[from], devices[to], bytes, linkS)
		}}
	users, shared := map[cluster.Port][2]int{}, false
	uses := func(loads []cluster.Load, by [2]int) {
		for _, l := range loads {
			first, used := users[l.Port]
			shared = shared || used && first != by
			users[l.Port] = by
		}
	}
	for s := range pl.Stages {
		out.Sums[s] = sumLoads(p, c, pl, s, costs.Stages[s])
		uses(out.Sums[s], [2]int{-1, s})
	}
	for s := 1; s < len(pl.Stages); s++ {
		for _, a := range pl.Stages[s-1].Devices {
			for _, b := range pl.Stages[s].Devices {
				for _, way := range [][2]int{{a, b}, {b, a}} {
					for _, l := range c.MessageLoads(way[0], way[1], 1, 1) {
						by := way
						if level := c.Levels[l.Port.Level]; level.Shared || level.Uplinks || level.Rails > 0 {
							by = [2]int{-2, 0} // messages go one after the other
						}
						uses([]cluster.Load{l}, by)
					}
				}
				if shared {
					return out
				}
			}
		}
	}
	if !shared {
		return nil
	}
	return out
}

// sumLoads returns the loads of a stage's sums of gradients. It returns none for the collectives of zero2 and zero3,
// which are inside computations, and none for gathers of weights.
func sumLoads(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, s int, costs []StageCost) []cluster.Load {
	st := pl.Stages[s]
	if len(st.Devices) < 2 || pl.Shard.Gradients() {
		return nil
	}
	takesS := 0.0 // seconds of the slowest replica
	for r := range costs {
		takesS = max(takesS, costs[r].AllReduceS)
	}
	together := slices.Sorted(slices.Values(st.Devices))
	if !pl.Shard.States() {
		return c.SumLoads(together, float64(costs[0].ParameterBytes), cluster.AllReduce, takesS)
	}
	gradients := 0.0
	for _, u := range memory.Units(p, st) {
		gradients += float64(u.GradientBytes)
	}
	return c.SumLoads(together, gradients, cluster.Gather, takesS)
}

// traffic holds the messages and sums under way, and those that wait, if costs have Ports. A port gives each flow an
// equal share of its rate. If a flow cannot use its whole share, the rest goes to the other flows at this port. A flow
// is as fast as the slowest of its ports lets it be. What the flow leaves unused at its other ports stays unused, so
// that a change affects only flows at the same ports.
type traffic struct {
	s     *state
	ports *Ports
	flows []*flow // by number; nil if the number is free
	free  []int32 // numbers that no flow has any more
	paced int32   // how often any flow has got a new rate
	on    map[cluster.Port][]*flow
	lines map[[2]int][]*message // by link: messages in the order in which they came

	ending  map[schedule.Instruction]schedule.Instruction // by last backward (or its second half): the sum after it
	closing map[schedule.Instruction]schedule.Instruction // by sum: the last backward before it
	adding  map[schedule.Instruction]*addition            // by leader
	summing []bool                                        // by worker
	waiting []*addition                                   // sums whose next part waits for a worker, in order
}

// flow is a transfer under way, or a delay. `left` is how much time the flow still needed at the time `since`, if no
// other flow slowed it down.
type flow struct {
	number, version   int32
	loads             []cluster.Load
	left, rate, since float64
	ends              func()
}

// newTraffic returns nil if the costs have no Ports.
func newTraffic(s *state) *traffic {
	ports := s.terms.costs.Ports
	if ports == nil {
		return nil
	}
	t := &traffic{s: s, ports: ports, on: map[cluster.Port][]*flow{}, lines: map[[2]int][]*message{},
		ending:  map[schedule.Instruction]schedule.Instruction{},
		closing: map[schedule.Instruction]schedule.Instruction{},
		adding:  map[schedule.Instruction]*addition{}, summing: make([]bool, s.terms.p.Workers)}
	for w := range s.terms.p.Workers {
		last := map[int]schedule.Instruction{} // by place
		s.terms.p.Walk(w, func(in schedule.Instruction) bool {
			switch in.Kind {
			case schedule.B, schedule.W:
				last[s.terms.place(in)] = in
			case schedule.AR:
				if b, there := last[s.terms.place(in)]; there {
					t.ending[b], t.closing[in] = in, b
					delete(last, s.terms.place(in))
				}
			}
			return true
		})
	}
	return t
}

// start starts a flow. It takes `takes` seconds if no other flow slows it down. A flow without loads is a delay.
func (t *traffic) start(loads []cluster.Load, takes float64, ends func()) {
	f := &flow{loads: loads, left: takes, since: t.s.queue.now, ends: ends}
	if n := len(t.free); n > 0 {
		f.number, t.free = t.free[n-1], t.free[:n-1]
	} else {
		f.number = int32(len(t.flows))
		t.flows = append(t.flows, nil)
	}
	t.flows[f.number] = f
	for _, l := range loads {
		t.on[l.Port] = append(t.on[l.Port], f)
	}
	if len(loads) == 0 {
		t.pace(f, 1)
	}
	t.share(loads)
}

// share sets the new rate of each flow at some ports, from the flows that are there now.
func (t *traffic) share(ports []cluster.Load) {
	before := t.paced
	for _, p := range ports {
		for _, f := range t.on[p.Port] {
			if f.version > before { // already changed, at another of these ports
				continue
			}
			rate := 1.0
			for _, l := range f.loads {
				rate = min(rate, t.fair(l.Port)/l.Part)
			}
			t.pace(f, rate)
		}
	}
}

// fair returns the largest part of a port that one flow may take now. It is at least an equal share.
func (t *traffic) fair(port cluster.Port) float64 {
	flows := t.on[port]
	if len(flows) == 1 {
		return 1
	}
	var room [8]float64
	parts, all := room[:0], 0.0
	for _, f := range flows {
		for _, l := range f.loads {
			if l.Port == port {
				parts, all = append(parts, l.Part), all+l.Part
			}
		}
	}
	if all <= 1 {
		return 1
	}
	slices.Sort(parts)
	left := 1.0
	for i, p := range parts {
		if each := left / float64(len(parts)-i); p > each {
			return each
		}
		left -= p
	}
	return 1 // not reached: together the flows want more than there is
}

// pace changes a flow's rate from now on, and with it when the flow ends.
func (t *traffic) pace(f *flow, rate float64) {
	if rate == f.rate {
		return
	}
	now := t.s.queue.now
	f.left = max(0, f.left-(now-f.since)*f.rate)
	f.since, f.rate = now, rate
	t.paced++
	f.version = t.paced
	t.s.queue.push(event{at: now + f.left/rate, worker: f.number, from: f.version, what: flowed})
}

// stale reports whether an event is the end of a flow that has ended or has changed its rate since.
func (t *traffic) stale(e event) bool {
	return e.what == flowed && (t.flows[e.worker] == nil || t.flows[e.worker].version != e.from)
}

func (t *traffic) flowed(number int32) {
	f := t.flows[number]
	t.flows[number], t.free = nil, append(t.free, number)
	for _, l := range f.loads {
		on := t.on[l.Port]
		t.on[l.Port] = slices.Delete(on, slices.Index(on, f), slices.Index(on, f)+1)
	}
	t.share(f.loads)
	f.ends()
}

// message is a transfer that waits for its links or uses them.
type message struct {
	transfer
	readyS, latencyS, takes float64
	occupies                bool
	links                   [][2]int
}

// send puts a message in the lines of its links.
func (t *traffic) send(m *message) {
	for _, key := range m.links {
		t.lines[key] = append(t.lines[key], m)
	}
	t.leave(m)
}

// leave starts a message if it is the first in the line of each of its links. If the message is not ready yet, it keeps
// its place in the lines until it is ready.
func (t *traffic) leave(m *message) {
	for _, key := range m.links {
		if t.lines[key][0] != m {
			return
		}
	}
	if wait := m.readyS - t.s.queue.now; wait > 0 {
		m.readyS = 0
		t.start(nil, wait, func() { t.leave(m) })
		return
	}
	start := t.s.queue.now
	loads := t.ports.Message(m.from, m.to, m.bytes, m.takes)
	if err := checkParts(loads, "a message of %d bytes from worker %d to worker %d", m.bytes, m.from, m.to); err != nil {
		t.s.fault = cmp.Or(t.s.fault, err)
		return
	}
	t.start(loads, m.takes, func() { t.left(m, start) })
}

// left ends a message on its links: it notes the arrival, and starts messages that are the first in their lines now.
func (t *traffic) left(m *message, start float64) {
	t.s.arrives(m.transfer, m.occupies, start, t.s.queue.now+m.latencyS)
	for _, key := range m.links {
		t.lines[key] = t.lines[key][1:]
	}
	for i, key := range m.links {
		if line := t.lines[key]; len(line) > 0 && !slices.ContainsFunc(m.links[:i], func(k [2]int) bool {
			return len(t.lines[k]) > 0 && t.lines[k][0] == line[0]
		}) {
			t.leave(line[0])
		}
	}
}

// check refuses Ports together with devices that stream, missing loads, and loads of sums that checkParts refuses. The
// loads of messages are checked when they are needed.
func (p *Ports) check(stages int, streams bool) error {
	switch {
	case streams:
		return fmt.Errorf("sim: devices share ports and send while they compute (BaPipe's boards); it is one or the other")
	case p.Message == nil || len(p.Sums) != stages:
		return fmt.Errorf("sim: ports have the loads of messages: %v, and of the sums of %d stages; give both, of %d stages",
			p.Message != nil, len(p.Sums), stages)
	}
	for s := range p.Sums {
		if err := checkParts(p.Sums[s], "a collective of stage %d", s); err != nil {
			return err
		}
	}
	return nil
}

// checkParts refuses a load whose part of its port is not over 0 and at most 1. In the error, `what` with its arguments
// names the transfer that has the load.
func checkParts(loads []cluster.Load, what string, args ...any) error {
	for _, l := range loads {
		if !(l.Part > 0 && l.Part <= 1) {
			return fmt.Errorf("sim: "+what+" takes %v of port %v; a part is over 0 and up to 1",
				append(args, l.Part, l.Port)...)
		}
	}
	return nil
}
