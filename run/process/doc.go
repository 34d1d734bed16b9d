// Package process is one process's part of a run: its workers, their stages, their ends of the wire and a record.
//
// Input: a Job, a Place for the workers, and a Link to the leader. All processes of a run get the same Job, except for
// the World, the Carriers and the checkpoints on the process's own disks. Output: reports to the leader (run/control),
// and the process's results when it ends. A Process refuses messages that the leader sends out of order, and Programs
// for a different number of workers. It fails if a loss, a gradient norm or a weight to be saved is not finite.
//
// The caller makes a Process and calls Attend, which returns after the leader has said Leave or is lost. Attend frees
// devices, tensors and threads, whatever has happened. The only exception is a device that takes too long after another
// process was lost.
//
// The main parts of a Process are crew (its workers and the Gate), ends (its ends of the wire), underway (the current
// Program), ledger (the record), saving and leaving. A worker holds replicas of stages (holding). Each holding has the
// tensors that cross its borders (crossing), its losses, the sums beside the worker (replicas, lending, turns), its
// updates (updating), and its state under asp (serving).
//
// Every worker is a goroutine that stays locked to one OS thread and has its own engine Device. It asks the Gate
// whether its next instruction may start, executes it, and reports the end. Only the Gate decides, by the state machine
// that the simulator also uses. One mutex guards what the workers share. A waiting worker sleeps until an event
// concerns it. Transfers and collectives run beside the workers. The goroutine of a collective uses no Device, only
// host memory that the worker has lent it. A process learns about the workers of other processes only from messages.
package process
