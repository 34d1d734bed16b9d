// Package control coordinates the processes of a run through messages.
//
// The first process leads. Leader and Follower (one per process) are state machines without clock, I/O or goroutines.
// From a received message they compute the messages to send; a Follower also returns what to do. A Link carries
// Messages in both directions, in order: within a process as values, between processes as lines of JSON.
//
// Input: what a process did, and what the run does next. Output: Messages, each numbered by its sender from 1 on, and
// orders. A Message is refused if it is out of order or belongs to another Program. It is also refused if its sender
// may not send this kind, or if it is not a line of at most MaxLine bytes.
//
// # Before the run
//
// Ask, Answer, Begin and Dismiss are sent before the run and do not concern Leader and Follower (launch/setup). After
// Begin the same Link carries the run.
//
// # A Program
//
// When every process has sent Ended for one Program, the leader sends Load, Evaluate or Save with the text and epoch of
// the next Program. Reached and Release handle its drains. Step reports that a process's part of a step is complete.
// Result, Saved and then Ended finish the Program.
//
// # Checkpoints
//
// Between two Programs the leader may give an order; Commit and Prune may also be given during a Program. The next
// order or Program waits until every process has answered with Done. Mark and Look find out once which processes share
// a folder of checkpoints. The first process that has a folder is its keeper. Prune makes each keeper remove
// drafts and the oldest checkpoints.
//
// A checkpoint takes up to four messages of the leader. After a Save and the last Ended its files are on the disks of
// all hosts. A first Commit, for the leader's own process, completes it. If there are other folders, a second Commit,
// for their keepers, writes the manifest there too. A Prune follows.
//
// If a run ends before the first Commit, or the Commit was refused, Leave names the draft to remove. If it ends during
// a Commit, the state is unknown, and drafts stay for the next run. That run can use the files in a draft of the
// checkpoint from which it resumes, and prunes other drafts. It sets drafts of newer checkpoints aside if an older
// checkpoint was named, or if newer ones are incomplete.
//
// # Stopping
//
// To stop a run, the leader sends Stop once. Each process answers Begun with the greatest minibatch that any of its
// workers has begun, and begins no greater one. The leader then sends Limit: the number of minibatches up to the
// greatest of all, rounded up to a multiple of the minibatches that one update of every stage covers. A Program that
// ends in the meantime simply ends.
//
// # Failing
//
// The first Failed that the leader receives, or makes itself, ends the run, and every process is told. This ends
// everything in progress, even a Stop. Messages of processes that have not been told yet are ignored.
//
// # Stalls
//
// The leader sends Beat at intervals. A process answers Needs: for how long nothing has happened in it, and what its
// workers wait for. If a run has only one process and no worker there can ever continue, the process says so at once.
//
// # Clocks
//
// Each answer to a Beat is also a Reading of the process's clock. The leader asks several times before the first
// Program and after the last, when no worker computes. From these Readings a Clock computes what to add to a process's
// times.
//
// # Leaving
//
// Leave is the leader's last message. A failure after it is the run's error, but no process is told. Each process frees
// everything and sends its record in parts, as Records, and then Left.
//
// Leader.Owing returns the processes that owe Needs or Left. A process that owes one of these for too long is lost.
// Leader.Still returns the processes that owe Ready or Done and in which nothing has happened for some time; they are
// lost too. The run's error is then a LostError.
//
// # Lost ends
//
// A Link over a connection (Over) ends with an error if the connection ends, or if nothing comes from the other end for
// some seconds. Each end therefore writes an empty line in every second without other output. An end that delivers more
// slowly than messages arrive stops reading for a while, but goes on writing. A closed end writes a line with a dot. It
// then waits for the same line from the other end, which sends it after it has read everything.
//
// # Duties of the caller
//
//  1. Give a Leader, or a Follower, the messages of each Link in order, one at a time, and send what it
//     returns in order.
//  2. Carry out what Follower.Receive returns. Answer Stop with Begun, Beat with Needs, an order with Done,
//     and Leave with Left.
//  3. If Receive returns an error, fail the run with it.
//  4. If a Message cannot be sent, call Unsay and fail the run with the error. Only a process whose Link has
//     ended is lost.
//  5. Time what Leader.Owing returns, from the Beat or Leave on. Call Lose for a process that it returns for too
//     long, or that Leader.Still returns.
package control
