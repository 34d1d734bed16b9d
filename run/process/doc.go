// Package process is one process's part of a run: its workers, their stages, their ends of the wire and a
// record.
//
// In: a Job, which every process of the run is told alike but for the World that says which one it is, a
// Place for the workers, and a Link to the leader. Out: what the leader is told (run/control), and what the
// process leaves behind.
// Refused: what the leader says out of order, Programs that the Job does not take, a loss or a gradient norm
// that is not finite.
//
// Whoever drives it makes a Process, calls Attend on a goroutine of its own, and has the leader say Leave in
// the end; Attend then gives back devices, tensors and threads, whatever has happened.
//
// A Process has parts: crew, its workers and the Gate; ends, its ends of the wire; underway, the Program under way;
// ledger, what has happened; saving; leaving. A worker holds replicas of stages (holding), each with what
// crosses its borders (crossing), its losses, what is summed beside the worker (replicas, lending, turns), how it
// is updated (updating), and what it is where one worker has the weights (serving).
//
// Every worker is a goroutine locked to an OS thread for life, with an engine Device of its own. It asks the
// Gate, which the simulator asks too, whether its next instruction may start, executes it, and says so;
// nobody else decides. One mutex guards what the workers share; a worker that must wait sleeps until an event
// concerns it. Transfers and collectives run beside the workers; a collective's goroutine touches memory that
// the worker has lent it and no Device. Nothing of a worker of another process is looked up: what is not in a
// message is not known.
package process
