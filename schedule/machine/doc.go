// Package machine decides which worker may start its next instruction.
//
// It has three parts without clock, I/O, lock or goroutine. A Local is one worker's list: its position, what has
// arrived, what is issued. A CorePool hands out tokens to workers that share cores. A Barrier counts workers at a
// drain. A Process combines the Locals of one process's workers and their CorePools. A Machine is a Process with all
// workers and a Barrier, for callers that play a whole Program: sim, Check, tests. No other code decides who may start.
//
// In: a lowered Program, and what has happened, from one goroutine at a time. Out: for each worker what it may start
// now, or a Need that says what is lacking. Refused: Programs that are not lowered, a different number of workers, and
// a next Program before all lists have ended. Calls that break the rules below (a Start of what is not ready) panic.
//
// # Transitions
//
// An instruction goes through three transitions: Start, Issued (the worker's host goes on in its list) and Done (its
// event is set). The next instruction of a worker's list is its head. A driver must make the transitions in this order:
//
//   - Computations (F, B, I, W, U, EV): Start, Issued, Done. On a CPU the last two come together: Issued(done).
//   - Sends, collectives and UR: Start, Issued once handed over, Done once complete. No instruction
//     waits for a send. U and some other instructions wait until the collectives whose result they use are Done. A
//     send or collective that was handed over waits for the events of what it reads. So a send leaves when the
//     computation before it is Done.
//   - Everything else (receives, PV, CK, DR): Start, and Issued with done.
//
// The next computation starts only when all computations before it are Issued, and at most Options.Ahead of them are
// not Done. A CK starts only when all of the worker's own computations and collectives are Done. A drain starts only
// when the worker's sends are Done too.
// Arrive says that a message has arrived, so that its event is set. The driver also uses Done for time spans, step
// marks and Need.Blocker.
//
// # Duties of the caller
//
//  1. Load a Program that is lowered and passes check.Check, the same one for all workers. Load the next one
//     when every list has ended with nothing open.
//  2. Poll a worker that may go on, and Start its head only when Poll has returned Ready, from one goroutine
//     at a time.
//  3. Call Issued once the worker's own time on its head is over, with done set if it is also Done. Call Done
//     once for each instruction that was Issued without done. Do not call either before it is true.
//  4. Call Arrive at the receiver once for each message of a send, when its event is set. With Options.Slots,
//     call Credit at the sender once the receive that took a message is Issued.
//  5. Poll again the workers that a call returns; nothing has changed for the others.
//  6. After Load, Issued, Done and Limit, pass AtDrain to a Barrier, and call Release when the Barrier says so.
//     A Machine does both itself.
//  7. To end early, ask all workers for Begun, Hold them meanwhile and give all the same Limit. Report a
//     refusal by Rollback, while the worker executes the first PV of the minibatch.
//  8. While a head is Dropping, free what Messages names and do not hand it on.
//  9. Decide nothing else. This package decides what may start, in which order cores are handed out and which
//     messages count.
//
// # Cores
//
// Options.Cores are pools of processors, each shared by some workers of a Process. A token covers one computation, the
// ready receives directly before it and the sends directly after it. A worker is in the queue of its pool while it
// lacks a core and nothing else, up to the end of that computation. It joins when all its receives have arrived, or
// when it gives its token back before a computation that could start. It gives the token back once the computation is
// Done, and its head is another computation, a receive, or an instruction that cannot start yet. While a receive before
// a computation has not arrived, the receives that have arrived are taken without a token. The token names the
// processor: the worker's last one if that is free.
//
// # Slots
//
// With Options.Slots an edge, a directed pair of workers, holds at most Options.Slots messages that were sent and not
// yet taken. A send needs a free slot on each of its edges. The receiver's driver gives the slot back to the sender by
// Credit, once a receive that took the message is Issued.
//
// # Strands
//
// The list of a server (schedule, ASP) is loose unless the Program sets InOrder. It consists of strands, one for each
// trainer: what the server does for that trainer, in the list's order. The Local chooses a strand whose next
// instruction is ready, in this order of preference: the rest of an update that it has begun, a send of weights that a
// trainer waits for, the gradients that came first. So no strand waits for another trainer's computation, with one
// exception. Under the Program's staleness, weights wait until the slowest trainer that has more work has caught up
// (Lack Ahead). The order in which instructions were started is the record. The same Program with that order as its
// list (lower.Recorded) has no strands. There is no deadlock. A trainer's messages and the server's messages to it
// alternate. So the next instruction of each strand becomes ready by itself, except an SW that waits for a slower
// trainer. The SW to the slowest trainer never waits.
//
// # Skipping
//
// Two things end a Program early, and each worker carries out both by itself. A worker skips an instruction by moving
// on in its list without doing it: it needs nothing for it and sends nothing. In names of this package, to skip is to
// pass. Drains are never skipped.
//
// Limit(n) ends a run that was asked to stop: everything of minibatch n and later is skipped. The caller first asks
// every worker for Begun, and has them Hold meanwhile. It then takes an n greater than all answers such that no update
// has minibatches both below n and from n on.
//
// Rollback(k) refuses the update of minibatch k (post-validation). The caller tells a Local while the worker executes
// its first PV of k, and no earlier. Everything of a later minibatch after that PV is skipped, with one exception.
// Receives take and drop (Dropping, Messages) exactly the messages whose sends come before the first PV of k in their
// sender's list: these messages were sent, and no other messages will be. If a worker receives a message before its own
// first PV of k, Check demands that the message is sent before the sender's first PV of k. So a worker that has not yet
// learned of the refusal does not wait for a worker that has.
//
// The remaining instructions do not deadlock. Take an execution of the whole Program (Check has one) and leave the
// skipped instructions out. A kept receive's messages come from kept sends. Under Limit this is so because both have
// the same minibatch. Under Rollback it follows from the rule for receives, or from what Check demands. A kept
// collective's members are all kept, since they have one minibatch. A kept U or PV waits only for its worker's own kept
// collectives. All workers keep a drain. So each kept instruction finds what it needs, in the same order. No edge ever
// has more untaken messages than before, so the slots are still enough.
//
// # Drains
//
// A Local is at drain k when its head is its k-th DR and nothing that it issued is open. When all workers of all
// processes are at drain k, the drain is released. Check demands that every message sent before a DR is taken before
// that DR. So at that moment no message is in flight, and no worker needs to know about the messages of other workers.
package machine
