// Package machine says which worker may start its next instruction.
//
// It is made of three pure parts without clock, I/O, lock or goroutine. A Local is one worker's list: where
// it is, what has arrived for it, what it has issued. A CorePool hands out tokens where workers share cores.
// A Barrier counts workers at a drain. A Process is the Locals of one process's workers with their CorePool;
// a Machine is all of them with a Barrier, for whoever plays a whole Program: sim, Check, tests. Nobody
// beside these decides who may start.
//
// In: a lowered Program, and what has happened, from one goroutine at a time. Out: for each worker what it
// may start now, or a Need that says what is lacking. Refused: Programs that are not lowered, another number
// of workers, and a next Program before the lists of the one before have ended. Calls that no driver may make
// (a Start of what is not ready) panic.
//
// # Transitions
//
// An instruction goes through three: Start, Issued (the worker's host goes on in its list) and Done (its
// event is set). A driver owes them in this order, and no more than this:
//
//   - Computations (F, B, I, W, U, EV): Start, Issued, Done. On a CPU the two come together: Issued(done).
//   - Sends and collectives: Start, Issued once they are handed over, Done once they are complete. Nobody in
//     the list waits for a send; U and others wait for Done of the collectives that they take from. What is
//     handed over waits by itself for the events of what it reads, so a send leaves when the computation in
//     front of it is Done.
//   - Everything else (receives, PV, CK, DR): Start and Issued, which is Done as well.
//
// The next computation needs Issued of those before it and at most Options.Ahead of them not Done. A CK needs
// all of the worker's own computations and collectives to be Done, a drain its sends too. Arrive says that a
// message is there: its event is set. Time spans, step marks and Need.Blocker of what waited go by Done too;
// they are the driver's.
//
// # What whoever drives it must do
//
//  1. Load a Program that is lowered and that check.Check passes, all workers at the same one; the next one
//     when every list has ended with nothing open.
//  2. Poll a worker whose time has come, and Start its head only when Poll has said Ready, from one goroutine
//     at a time.
//  3. Say Issued once the worker's own time on its head is over, with done where it is Done as well, and Done
//     once for each instruction that was Issued without it. Nothing is said before it is true.
//  4. Say Arrive at the receiver once for each message of a send, when its event is set; where Options.Slots
//     bounds edges, say Credit at the sender once the receive that took a message is Issued.
//  5. Poll again the workers that a call returns: of all others nothing has changed.
//  6. At a drain, tell a Barrier of AtDrain after Load, Issued, Done and Limit, and Release when it says so.
//     A Machine does both itself.
//  7. To end early, ask all workers for Begun, Hold them meanwhile and give all the same Limit; tell a
//     refusal by Rollback, while the worker executes the first PV of the minibatch.
//  8. While a head is Dropping, free what Messages names in place of handing it on.
//  9. Decide nothing else: what may start, in which order cores are handed out and which messages count is
//     said here.
//
// # Cores
//
// Options.Cores are pools of processors, each shared by some workers of a Process. A token covers one
// computation, the ready receives directly in front of it and the sends directly behind it. A worker stands
// in the queue of its pool from the moment when it lacks a core and nothing else up to the end of that
// computation: when its receives have all arrived, or when it has given its token back in front of a
// computation that could start. It gives the token back once the computation is Done and its head is the next
// computation, a receive, or waits. A receive that has arrived while another one in front of the same
// computation has not is taken without a token. The token names the processor: the worker's last one where
// that is free.
//
// # Slots
//
// With Options.Slots an edge, a directed pair of workers, holds so many messages that were sent and not yet
// taken. A send needs a free slot on each of its edges. Whoever drives the receiver gives the slot back to
// the sender, by Credit, once a receive that took the message is Issued.
//
// # Strands
//
// One worker's list may be loose: that of a server (schedule, ASP), unless the Program has it kept to (InOrder). Then
// it is strands, one for each trainer: what the server does for that trainer, in the list's order. Of the strands'
// heads the Local does what is ready: the rest of an update that it has begun; or else sends weights that a trainer
// waits for; or else takes the gradients that came first. So nobody waits for anybody else's computation, but by the
// Program's staleness, by which weights wait until the slowest trainer that has more to do has caught up (Lack Ahead).
// The order in which instructions were started is the record, and the same Program with that order as its list
// (lower.Recorded) has no strands. Nobody waits for ever: a trainer's messages and the server's to it take turns, so
// each head but a held-back SW becomes ready by itself, and the slowest trainer's is never held back.
//
// # Passing
//
// Two things end a Program early, and each worker carries both out alone. It passes an instruction by moving
// on in its list: it needs nothing for it, and nothing is sent by anybody for it. Drains are never passed.
//
// Limit(n), the end of a run that was asked to stop: everything of minibatch n and later is passed. Whoever
// decides n asks every worker for Begun, has them Hold meanwhile, and takes a number greater than all answers
// that every update's minibatches lie below or not below together.
//
// Rollback(k), a refusal of the update of minibatch k (post-validation): told to a Local while it executes
// its first PV of k, and no earlier. Everything of a later minibatch behind that PV is passed, except that
// receives take and drop (Dropping, Messages) exactly the messages whose sends stand in front of the first PV
// of k in their sender's list: those were sent, no others will be. Check demands that what a receive in front
// of a worker's first PV of k takes was sent in front of the sender's, so a worker that has yet to learn of
// the refusal waits for nobody who has.
//
// Nobody waits for ever in what is left. Take an execution of the whole Program (Check has one) and leave the
// passed instructions out. A kept receive's messages come from kept sends: both have one minibatch, and under
// Rollback that is the rule itself, or Check's. A kept collective's members are all kept, since they have one
// minibatch. A kept U or PV waits for its worker's own kept collectives only. A drain is kept by all. So each
// kept instruction finds what it needs, in the same order. On no edge are there ever more messages sent and
// not taken than there were, so slots suffice as before.
//
// # Drains
//
// A Local is at drain k when its head is its k-th DR and nothing that it issued is open. When all workers of
// all processes are, drain k is released. Check demands that every message sent in front of a DR is taken in
// front of it, so at that moment none is under way, and no worker needs to know what others have in flight.
package machine
