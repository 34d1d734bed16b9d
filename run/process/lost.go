package process

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/wire"
)

// noLeader is the error of a process that the leader is lost to.
func (x *Process) noLeader(err error) error {
	return control.NewLost(0, fmt.Sprintf("the leader (%s)", x.job.World.Name(0)), err)
}

// lostBy is an error of a worker as that of the process that is lost, where it says that one is: a LostError, or of a
// connection that has ended with another worker, or with a process that has files of the checkpoint gone on from.
func (x *Process) lostBy(worker int, err error) (*control.LostError, bool) {
	var lost *control.LostError
	var peer *wire.PeerError
	var file *checkpoint.PeerError
	process := x.job.World.Rank
	switch {
	case errors.As(err, &lost):
		return lost, true
	case errors.As(err, &peer) && peer.Lost && peer.Rank < len(x.job.World.Workers):
		process, err = x.job.World.Workers[peer.Rank].Process, fmt.Errorf("worker %d: %w", worker, peer)
	case errors.As(err, &file) && wire.Gone(file.Err):
		process, err = file.Process, file
	}
	if process == x.job.World.Rank {
		return nil, false
	}
	return control.NewLost(process, x.job.World.Name(process), err), true
}

// Due is what the process waited for as another was lost; nil where none is, or it waited for nothing of that one.
func (x *Process) Due() *control.Due {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.due
}

// dueOf is what a worker of this process has waited for longest of a process. The caller holds mu.
func (x *Process) dueOf(process int) *control.Due {
	if x.gate == nil || x.program == nil || x.ended {
		return nil
	}
	var longest *control.Due
	for _, need := range x.gate.Waits() {
		of, waits := x.waitsFor(need, process)
		if !waits {
			continue
		}
		waited := time.Since(x.workers[need.Worker].free).Seconds()
		if longest != nil && longest.WaitedS >= waited {
			continue
		}
		in := x.absolute(need.For)
		longest = &control.Due{Worker: need.Worker, Of: of, Instruction: in.String(), Stage: int(in.Stage), WaitedS: waited}
	}
	return longest
}

// waitsFor says which worker of a process a need is a need of.
func (x *Process) waitsFor(need machine.Need, process int) (worker int, waits bool) {
	in := func(worker int) bool { return x.job.World.Workers[worker].Process == process }
	switch need.Lack {
	case machine.Message:
		return need.Peer, in(need.Peer)
	case machine.Collective:
		_, workers := x.program.Group(need.For)
		if at := slices.IndexFunc(workers, in); at >= 0 {
			return workers[at], true
		}
	}
	return 0, false
}
