// Package run executes Programs on real tensors and the real clock.
//
// Input: a model, a plan, an engine, data and an optimizer. Output: a trained model in checkpoints, and a
// trace.Timeline of what happened. It refuses plans for another model, Programs that do not pass Check, and checkpoints
// of another model or batch. During a run it refuses a loss, a gradient norm or weights to be saved that are not
// finite.
//
// # Processes
//
// A World says which process each worker is in; a single process is the simplest case. Each process has its own workers
// with their stages, a state machine that decides which instructions they may start (schedule/machine), its ends of the
// connections between workers, and a record. Process 0 leads, even if it is the only one. It chooses the next Program,
// and decides when the run evaluates, saves and stops. Of the other processes it knows only what they report
// (run/control). Workers share nothing else except the messages of package wire.
//
// To run several processes, call Train in each with a Config of the same training. Type process.World says what may
// differ. Give each process a connection to the leader, and use the Result of process 0. Config.Checkpoint.Dir may be
// one directory that all can write to, or a separate one for each; the leader finds out which. In a separate folder,
// checkpoints that do not belong to this training's past are set aside.
//
// Each process has its own clock. The leader reads all clocks before the first Program, at intervals during the run,
// and after the last one (control.Clock). It fits a line through the readings of each process and converts every record
// to its own clock. The Timeline contains these lines and their errors. During the run, the start and end of each step
// are computed with the best reading until then. At the end, they are computed again for the steps whose events were
// kept.
//
// Config.Watch.ProfileS is how long each worker should compute per step. If it is set, the run reports stragglers
// (run/pace) to Hooks.OnPace and in the Timeline.
//
// Config.Machine.Place says what a run may change in its own process (threads, processors, GOMAXPROCS). By default it
// changes nothing.
//
// A device may execute a call after the call has returned (package engine). An instruction is then issued when the
// worker has made its calls, and done at the event recorded after them. Times, memory samples and step marks use these
// events. Messages leave when their tensors are ready. Losses stay on the device until something uses their minibatch's
// gradients. Sums that a thread beside the worker computes use host memory, and the worker copies the result to the
// device. Type process.Wait lists every place that waits.
//
// Updates that are validated later (schedule, post-validation) are made on copies. If a norm exceeds the limit, every
// stage takes its update back and repeats it with clipping. Each stage does so by itself, from the norm that it has.
// The Program ends there, the begun part of the next step is discarded, and a new Program continues with that step.
//
// # Checkpoints
//
// A checkpoint is the state of a run that drains: all stages have made the updates of the same steps, and nothing is in
// flight. Usually it is also written that way: Checkpointing.Every ends a Program, and another Program with only CK
// instructions follows. The checkpoint period of a stream therefore affects its weights.
//
// With Checkpointing.ByStage nothing is drained for a checkpoint (PipeDream §4). The Program continues past the end of
// an epoch. The first replica of each stage executes a CK after the stage's own last update of the epoch (lower.Saved).
// The weights that it saves are those of a drained run, bit for bit. The reason is that only earlier minibatches decide
// which version a minibatch reads and which gradients an update takes. Work on the next epoch is not in any weight yet.
//
// This has limits. An epoch ends where every stage updates, after whole groups of replicas. Only streams can save like
// this; in other Programs nothing is in flight after a step, so it would make no difference. Pipelines with a reference
// and runs under asp cannot. And no layer may have running statistics, which change with forwards. A save changes no
// bit of the run itself.
//
// A stage writes its file into the epoch's draft and reports it (control.Saved with its steps). It waits for no other
// stage, but its device waits for the disk. The leader seals an epoch once all stages have written it and the losses of
// its steps are known to be finite. It seals epochs in order while the Program continues: processes carry out the
// orders Commit and Prune meanwhile.
//
// The manifest is written last, so a kill between stages leaves the previous epoch, which is whole. Prune does not
// touch drafts of later epochs, because fast stages may already write there. Drafts that will not become checkpoints
// are removed when the run ends. A run that is to stop finishes what it has begun, as always, and saves there after a
// drain.
//
// # One worker holds the weights (asp)
//
// Under weight policy asp (schedule/server.go) the last worker is a server and has the optimizer. The other workers
// fetch the weights of each minibatch from it and send it gradients, in ordinary messages; they may be in any process.
// A step is one minibatch of one worker, so at most two processes have a part of it. Steps end in any order, and the
// leader reports them in their order.
//
// The server notes the number of each update and the version of the weights that its gradients were computed with.
// Timeline.Applied lists these for all steps. Config.Train.Replay makes a run apply its updates in such an order, with
// the same bits. Evaluations, checkpoints and the final weights are the server's. Programs end at these points, and
// each begins by sending the weights again. Layers with running statistics are refused, because each worker would have
// its own.
//
// # Ends
//
// Every run ends, unless a device hangs while it computes (see below). The first error stops every process. A panic in
// a worker becomes an error with its stack. When no worker can continue, or nothing has happened for a set time, the
// error says which worker waits for what.
//
// A process counts as lost in each of these cases. Its Link ends or is silent (package control). A connection to one of
// its workers ends, or a connection to read its files. It does not answer or leave within Config.Watch.StallAfter.
// While it starts or carries out an order, nothing happens in it for just as long. A transfer in progress counts as
// something happening.
//
// The error, a control.LostError, names the process and what it has not done; every remaining process returns it. These
// processes wait only briefly for their own devices. What a device still holds after that is not freed, and the host
// process should exit. The same applies if a device of the leader's own process hangs at the start or at the end.
//
// A device that hangs during the run cannot be distinguished from a slow one: Hooks.OnQuiet reports it. A run that is
// to stop ends with an error once nothing has happened for Config.Watch.StallAfter.
package run
