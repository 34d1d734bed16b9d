// Package control is how the processes of a run agree, in messages and nothing else.
//
// One process, the first, leads. A Leader and a Follower for each process are state machines without clock,
// I/O or goroutine: told what came, they say what to send, and a Follower also what to do. A Link carries
// Messages one way and the other, in order: within a process as values, between processes as lines of JSON.
//
// In: what a process did, and what the run wants next. Out: Messages, each numbered by its sender from 1 on,
// and orders. Refused: a Message out of order, of another Program than the one under way, of a kind that its
// sender does not say, or that is no line of at most MaxLine bytes.
//
// # Before the run
//
// Ask, Answer, Begin and Dismiss are of the time before it, and no business of a Leader and a Follower
// (launch/setup). Behind Begin the same Link carries the run.
//
// # A Program
//
// The leader sends Load, Evaluate or Save with the next Program's text and epoch once every process has said
// Ended of the one before. Reached and Release are its drains; Step says that a process's part of a step
// stands; Result, Saved and then Ended close it.
//
// # Checkpoints
//
// Between two Programs the leader may give an order, which every process answers with Done before anything else
// is sent: Mark and Look find out which processes share a folder of checkpoints, once, and Prune has each folder's
// keeper, the first process that has it, remove what is not to be kept. A checkpoint is a Save, whose files are on
// the disks of all hosts with the last Ended; a Commit of the leader's own process, with which it is whole; a
// Commit of the keepers of other folders, which have the manifest then too; and a Prune. Where a run is over in
// front of the first Commit, or that was refused, Leave names the draft that is to go. Otherwise nobody can know, and
// drafts stay for the next run: it goes on from a checkpoint with files of a draft, and prunes the others, or sets them
// aside where it goes on from an older one by its name, or since newer ones are not whole.
//
// # Stopping
//
// Whoever is to stop the run says so to the leader, which sends Stop, once. Each process answers Begun, the
// greatest minibatch that any of its workers has begun, and from then on none begins a greater one. Limit is
// the answer: the greatest of all, rounded up to what one update of every stage covers. A Program that ends
// meanwhile has ended.
//
// # Failing
//
// The first Failed that the leader has, its own or a process's, is the run's, and every process is told it;
// whatever else was under way is over, a Stop included. What comes of processes that do not know yet is
// ignored.
//
// # Stalls
//
// The leader sends Beat now and then; a process answers Needs: for how long nothing has happened in it, and
// what its workers wait for. A process that is alone, and in which nobody can ever move, says so at once.
//
// # Clocks
//
// Each answer to a Beat is also a Reading of the process's clock. The leader asks several times before the first
// Program and behind the last, when nobody computes, and a Clock says from these what to add to a process's times.
//
// # Leaving
//
// Leave is the last that the leader says: what fails behind it is the run's error, and no process is told.
// Each process gives everything back, sends its record in parts, as Records, and Left behind them.
//
// Leader.Owing says which processes owe Ready, Done, Needs or Left. One that owes something for too long is
// lost, and the run's error is a LostError.
//
// # Lost ends
//
// A Link over a connection (Over) ends with an error where the connection ends, and where nothing is heard of the
// other end for some seconds. Each end therefore writes an empty line every second in which it has nothing else to
// say. An end that does not deliver as fast as messages come reads nothing for a while, and goes on saying that it is
// there. An end that is closed says so, a line with a dot, and waits until the other has answered with the same, that
// is, has read everything.
//
// # What whoever drives these must do
//
//  1. Give a Leader, or a Follower, what comes from each Link in order, one at a time, and send what it
//     returns in order.
//  2. Carry out what Follower.Receive returns, and say Begun at a Stop, Needs at a Beat, Done behind an order,
//     Left behind Leave.
//  3. Where Receive returns an error, fail the run with it.
//  4. Where a Message cannot be sent, Unsay it and fail the run with why. Lost is only a process whose Link has ended.
//  5. Time what Leader.Owing says, from the Beat, order or Leave on, and Lose a process that owes it for too long.
package control
