package run

import (
	"time"

	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// checkStall tells the leader where this is the only process, nobody runs, nothing is on its way, not everybody is
// done and the leader owes no answer: nobody can ever move. The caller holds mu.
func (x *process) checkStall() {
	if x.err != nil || x.program == nil || x.ended || x.flying > 0 || x.job.world.processes() > 1 {
		return
	}
	if _, _, all := x.gate.AtDrain(); all {
		return
	}
	for _, k := range x.mine {
		if x.workers[k].running || x.gate.Local(k).Open() > 0 || x.workers[k].lacks.Lack == machine.Held {
			return
		}
	}
	n := x.needs()
	n.Stuck = true
	x.say(n)
}

// needs is what the workers wait for. The caller holds mu.
func (x *process) needs() control.Needs {
	now := time.Now()
	n := control.Needs{QuietS: now.Sub(x.moved).Seconds(), Ended: x.program == nil || x.ended}
	if n.Ended {
		return n
	}
	for _, k := range x.mine {
		n.Running = n.Running || x.workers[k].running
	}
	for _, need := range x.gate.Waits() {
		free := x.workers[need.Worker].free
		w := control.Wait{
			Worker: need.Worker, At: need.At, Lack: need.Lack, Peer: need.Peer, Waited: now.Sub(free), Since: x.since(free),
		}
		if need.For != (schedule.Instruction{}) {
			w.For = need.For.String()
		}
		n.Waits = append(n.Waits, w)
	}
	return n
}
