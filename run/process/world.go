package process

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire"
)

// World says which process of a run each worker is in. Every process calls Train with a Config of the same training.
// Machine.World, Wire.Carriers and Resume.Open differ between processes; Checkpoint.Dir, Checkpoint.Claim, Hooks,
// Machine.Cores and Machine.Place may differ. Process 0 leads. A process may have no workers.
type World struct {
	Rank    int        // number of this process
	Workers []Location // by worker
	// Hosts has the host of each process, so it says how many processes there are. nil means that hosts are not
	// reported and that every process has workers.
	Hosts []string
	// Links connect the processes. The leader has one to each process, nil for itself. Any other process has only the
	// one to the leader. The run closes them.
	Links []control.Link
}

// Location says where a worker is.
type Location struct {
	Process int
	Device  int // the device's number in the process's engine
}

// Alone returns the World of a run in one process.
func Alone(workers int) *World {
	w := &World{Workers: make([]Location, workers)}
	for k := range w.Workers {
		w.Workers[k].Device = k
	}
	return w
}

// processes returns the number of processes.
func (w *World) processes() int {
	n := len(w.Hosts)
	for _, at := range w.Workers {
		n = max(n, at.Process+1)
	}
	return n
}

// WorkersOf returns the workers of each process.
func (w *World) WorkersOf() [][]int {
	all := make([][]int, w.processes())
	for p := range all {
		all[p] = []int{} // not nil for a process without workers
	}
	for k, at := range w.Workers {
		all[at.Process] = append(all[at.Process], k)
	}
	return all
}

// Name returns the name of a process in errors.
func (w *World) Name(process int) string {
	if host := w.HostOf(process); host != "" {
		return fmt.Sprintf("rank %d on host %s", process, host)
	}
	return fmt.Sprintf("rank %d", process)
}

// HostOf returns the host of a process; empty if unknown.
func (w *World) HostOf(process int) string {
	if process >= len(w.Hosts) {
		return ""
	}
	return w.Hosts[process]
}

// Called returns the name of a worker, followed by the name of its process. It leaves out the process if there is only
// one and its host is not named.
func (w *World) Called(worker int) string {
	at := w.Workers[worker]
	if w.Hosts == nil && w.processes() == 1 {
		return fmt.Sprintf("worker %d", worker)
	}
	return fmt.Sprintf("worker %d (%s)", worker, w.Name(at.Process))
}

// Check returns an error unless the World is valid and has this number of workers.
func (w *World) Check(workers int) error {
	if len(w.Workers) != workers {
		return fmt.Errorf("run: a world of %d workers; the plan has %d", len(w.Workers), workers)
	}
	most := len(w.Hosts)
	if w.Hosts == nil {
		most = workers
	}
	for k, at := range w.Workers {
		if at.Process < 0 || at.Process >= most || at.Device < 0 {
			return fmt.Errorf("run: worker %d is in process %d on device %d; processes are 0 to %d at most", k, at.Process,
				at.Device, most-1)
		}
	}
	for p, host := range w.Hosts {
		if err := trace.CheckHost(host); err != nil {
			return fmt.Errorf("run: process %d: %w", p, err)
		}
	}
	of := w.WorkersOf()
	links := len(of)
	if w.Rank != 0 {
		links = 1
	}
	switch {
	case w.Rank < 0 || w.Rank >= len(of):
		return fmt.Errorf("run: this is process %d of %d", w.Rank, len(of))
	case len(w.Links) != links && (len(w.Links) > 0 || len(of) > 1):
		return fmt.Errorf("run: process %d has %d links; %d are wanted", w.Rank, len(w.Links), links)
	}
	for p, l := range w.Links {
		if (l == nil) != (w.Rank == 0 && p == 0) {
			return fmt.Errorf("run: link %d of process %d is missing, or to itself", p, w.Rank)
		}
	}
	return nil
}

// noLeader returns the error of a process that has lost the leader.
func (w *World) noLeader(err error) error {
	return control.NewLost(0, fmt.Sprintf("the leader (%s)", w.Name(0)), err)
}

// lostBy converts a worker's error to the error of a lost process, if the error shows that a process is lost. An error
// shows this if it is a LostError, or if it says that a connection has ended. The connection may be to another worker,
// or to a process that has files of the resumed checkpoint.
func (w *World) lostBy(worker int, err error) (*control.LostError, bool) {
	var lost *control.LostError
	var peer *wire.PeerError
	var file *checkpoint.PeerError
	process := w.Rank
	switch {
	case errors.As(err, &lost):
		return lost, true
	case errors.As(err, &peer) && peer.Lost && peer.Rank < len(w.Workers):
		process, err = w.Workers[peer.Rank].Process, fmt.Errorf("worker %d: %w", worker, peer)
	case errors.As(err, &file) && wire.Gone(file.Err):
		process, err = file.Process, file
	}
	if process == w.Rank {
		return nil, false
	}
	return control.NewLost(process, w.Name(process), err), true
}

// waitedFor returns a worker in the given process that a need waits for. For a collective, this is any member in the
// process. If no such worker is in the process, `waits` is false.
func (w *World) waitedFor(process int, p *schedule.Program, need machine.Need) (worker int, waits bool) {
	in := func(worker int) bool { return w.Workers[worker].Process == process }
	switch need.Lack {
	case machine.Message:
		return need.Peer, in(need.Peer)
	case machine.Collective:
		_, workers := p.Group(need.For)
		if at := slices.IndexFunc(workers, in); at >= 0 {
			return workers[at], true
		}
	}
	return 0, false
}
