package process

import (
	"slices"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/collective"
)

// groupOf returns the number of a collective's group, made of the collective's kind, pipeline and stage. The number is
// never 0, because 0 stands for transfers. The replicas of a stage that sum gradients are one group. Tied gradients and
// norms are sent between pairs of workers, with the number that groupOf returns for the sender's stage.
func groupOf(in schedule.Instruction) uint64 {
	return uint64(in.Kind)<<48 | uint64(uint16(in.Pipeline))<<32 | uint64(uint32(in.Stage))
}

// sumLanes is how many buckets of one all-reduce are in flight at once if edges have slots. Edges have slots if
// messages are sent as bytes. With two lanes, the terms of one bucket are sent while the sums of the bucket before it
// come back. If messages hand over memory instead, one lane is enough, because nothing is delayed.
const sumLanes = 2

// lanes returns how many buckets of one all-reduce are in flight at once. `limited` says whether edges have slots.
func lanes(limited bool) int {
	if limited {
		return sumLanes
	}
	return 1
}

// lane returns the group for lane k of an all-reduce. Replicas distribute their buckets over the lanes in turn.
func lane(ar schedule.Instruction, k int) uint64 {
	ar.Replica = 0
	return groupOf(ar) | uint64(k)<<56
}

// pairName names the edge from a replica of one stage to a member of another stage. The edge carries a value that all
// replicas of the first stage have in common.
func pairName(from schedule.Instruction, worker int, to schedule.Instruction, other int) wire.Name {
	return wire.Name{From: worker, To: other, Group: groupOf(from), Pair: uint32(to.Stage)<<10 | uint32(to.Replica)}
}

// speaker returns which replica of from's stage sends to `to`, a member of another stage. All replicas have the same
// value, so one of them is enough. The speaker is the replica with the member's number, modulo the number of replicas,
// so that the sends are distributed evenly. Replicas of the same number often share a worker, so this avoids messages
// between hosts.
func speaker(p *schedule.Program, from, to schedule.Instruction) int16 {
	return to.Replica % int16(len(p.Placement[from.Pipeline][from.Stage]))
}

// naming is the state of nameEdges.
type naming struct {
	*schedule.Program
	table *wire.Table
	mine  func(worker int) bool
	slots int                    // messages that may wait at the receiver of an edge; 0 means no bound
	here  []schedule.Instruction // the replicas on these workers, as instructions without a kind
}

// nameEdges names the edges that some workers have in a Program. The order of edges between two workers depends only
// on the Program, so that both ends give them the same numbers.
func nameEdges(t *wire.Table, p *schedule.Program, mine func(worker int) bool, slots int) error {
	n := naming{Program: p, table: t, mine: mine, slots: slots}
	for pl, stages := range p.Placement {
		for s, ranks := range stages {
			for r, worker := range ranks {
				if mine(worker) {
					n.here = append(n.here, schedule.Instruction{Pipeline: int16(pl), Stage: int32(s), Replica: int16(r)})
				}
			}
		}
	}
	if p.Served() {
		return n.nameServed()
	}
	for pl, stages := range p.Placement {
		for s := range stages {
			first := schedule.Instruction{Pipeline: int16(pl), Stage: int32(s)}
			if err := n.transfers(stages, s); err != nil {
				return err
			}
			for k := range lanes(slots > 0) {
				group := lane(asKind(first, schedule.AR), k)
				if err := collective.NameEdges(t, group, stages[s], mine, slots > 0); err != nil {
					return err
				}
			}
			for _, kind := range []schedule.Kind{schedule.TG, schedule.GN} {
				if kind == schedule.GN && !p.Clip {
					continue
				}
				if err := n.shared(asKind(first, kind)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// transfers names the edges in both directions between stage s and the next, for replicas that share rows.
func (n *naming) transfers(stages [][]int, s int) error {
	if s+1 == len(stages) {
		return nil
	}
	var all, near []int // replicas of the next stage
	for j, worker := range stages[s+1] {
		if all = append(all, j); n.mine(worker) {
			near = append(near, j)
		}
	}
	for i, here := range stages[s] {
		others := near
		if n.mine(here) {
			others = all
		}
		for _, j := range others {
			there := stages[s+1][j]
			if here == there || !n.Share(i, len(stages[s]), j, len(stages[s+1])) {
				continue
			}
			for _, name := range []wire.Name{{From: here, To: there}, {From: there, To: here}} {
				if _, err := n.table.Edge(name, n.slots); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// shared names the edges from a stage's replicas to members of other stages. These edges carry a value that the
// replicas have in common.
func (n *naming) shared(from schedule.Instruction) error {
	ranks := n.Placement[from.Pipeline][from.Stage]
	var members []schedule.Instruction
	if slices.ContainsFunc(ranks, n.mine) {
		members, _ = n.Group(from)
	} else {
		tied := n.TiedTo(int(from.Stage))
		for _, to := range n.here {
			if to.Pipeline == from.Pipeline && (from.Kind == schedule.GN || slices.Contains(tied, int(to.Stage))) {
				members = append(members, to)
			}
		}
	}
	for _, to := range members {
		if to.Stage == from.Stage {
			continue
		}
		speaks, hears := ranks[speaker(n.Program, from, to)], n.Placement[to.Pipeline][to.Stage][to.Replica]
		if !n.mine(speaks) && !n.mine(hears) {
			continue
		}
		if _, err := n.table.Edge(pairName(from, speaks, to, hears), min(1, n.slots)); err != nil {
			return err
		}
	}
	return nil
}

// nameServed names the edges between a server and its trainers.
func (n *naming) nameServed() error {
	server := n.WorkerOf(1, 0, 0)
	for _, trainer := range n.Program.Placement[0][0] {
		if !n.mine(server) && !n.mine(trainer) {
			continue
		}
		for _, name := range []wire.Name{{From: trainer, To: server}, {From: server, To: trainer}} {
			if _, err := n.table.Edge(name, n.slots); err != nil {
				return err
			}
		}
	}
	return nil
}

// ends holds the process's ends of the wire: its workers' ports, and their edges in the current Program.
type ends struct {
	x      *Process
	ports  *wire.Ports
	table  wire.Table
	broken chan breakage // the first error that a port found by itself
	early  func()        // reports messages that came before their program; set under mu, called without it
}

// sendBytes reports whether a worker of this process sends messages as bytes.
func (e *ends) sendBytes() bool {
	for _, w := range e.x.crew.mine {
		for k := range e.x.crew.workers {
			if !w.mail.port.HandsOver(k) {
				return true
			}
		}
	}
	return false
}

// config returns the configuration of a worker's port.
func (e *ends) config(rank int) wire.Config {
	x := e.x
	return wire.Config{
		Now:     func() float64 { return time.Since(x.ledger.began).Seconds() },
		Arrived: func(a wire.Arrival) { e.arrived(rank, a) },
		Credited: func(of wire.Edge, slots int) {
			x.guarded(rank, schedule.Instruction{}, func() {
				if x.crew.workers[of.To] != nil {
					x.activity.flying -= slots
				}
				for range slots {
					x.look(x.crew.gate.Credit(rank, of.To))
				}
				x.checkStall()
			})
		},
		Broken: func(err error) {
			select {
			case e.broken <- breakage{rank, err}:
			default: // the first error is enough
			}
		},
		Room: func(_ wire.Edge, parts []wire.Buffer) error {
			for i := range parts {
				b := &parts[i]
				t, data, err := x.crew.workers[rank].dev.Room(engine.DTypeNamed(b.DType.String()), b.Shape)
				if err != nil {
					return err
				}
				b.Owner, b.Data = t, data
			}
			return nil
		},
	}
}

// credits counts slots that are about to return to a sender of this process.
func (e *ends) credits(of wire.Edge, slots int) {
	x := e.x
	x.mu.Lock()
	defer x.mu.Unlock()
	if of.Slots > 0 && x.crew.workers[of.From] != nil {
		x.activity.flying += slots
	}
}

// guarded calls the function `tell` with mu held; `tell` reports something to the gate. Once the process has failed,
// guarded does not call tell. It is used on goroutines of the wire. A panic in tell ends the run.
func (x *Process) guarded(worker int, in schedule.Instruction, tell func()) {
	err := crash.Guard(func() error {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.failure.err == nil {
			tell()
		}
		return nil
	})
	if err != nil {
		x.fail(worker, x.crew.workers[worker].failed(in, err))
	}
}

// arrived reports to the gate that a message is there for a worker. From now on the message's memory counts as the
// worker's. The sending instruction is read from the message's key, because nothing else is known of the sender.
func (e *ends) arrived(to int, a wire.Arrival) {
	x := e.x
	in := schedule.Key(a.Key).Instruction()
	x.guarded(to, in, func() {
		for i := range a.Parts {
			x.crew.workers[to].dev.Charge(tensorOf(&a.Parts[i]))
		}
		x.activity.moved = time.Now()
		if x.crew.workers[a.Edge.From] != nil {
			x.activity.flying--
		}
		x.look(x.crew.gate.Arrive(to, in))
		x.checkStall()
	})
}

// tensorOf returns the tensor that a transfer's buffer belongs to: the sender's own, or one that Room has made.
func tensorOf(b *wire.Buffer) engine.Tensor { return b.Owner.(engine.Tensor) }
