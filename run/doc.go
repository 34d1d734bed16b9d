// Package run executes Programs on real tensors and the real clock.
//
// In: a model, a plan, an engine, data, an optimizer. Out: a trained model in
// checkpoints, and a trace.Timeline of what happened.
// Refused: plans for another model, Programs that do not pass Check, checkpoints of another
// model or batch; during a run, a loss or a gradient norm that is not finite.
//
// # Processes
//
// A World says which process each worker is in; one process is the trivial one. Each has its own workers,
// what decides for them (schedule/machine), their stages, their ends of the wire and a record. Process 0
// leads: it decides which Program is next, stops, evaluates, saves and reports, from what the processes say
// alone (run/control), in one process too. Workers share nothing else but what package wire moves.
//
// Whoever runs several processes has each call Train with the same Config but for its World and its Carriers,
// gives them connections to the leader, and takes process 0's Result. Config.Checkpoint.Dir may be one directory
// that all can write to, or several of each its own; the leader finds out. In a
// folder of another process's own, checkpoints that are not of this training's past are set aside.
//
// Each process has a clock of its own. The leader reads all of them before the first Program, now and then, and behind
// the last one (control.Clock), and puts every record on its own clock by the line through these readings; the
// Timeline has the line of each process and its error. While the run goes on, steps are marked by the reading that is
// best by then, and those whose events are kept are marked anew at the end.
//
// Config.Watch.ProfileS is how long each worker is to compute in a step. With it the run names stragglers (run/pace) to
// Hooks.OnPace and in the Timeline.
//
// What a run changes of the process that it is in (threads, processors, GOMAXPROCS) is what Config.Machine.Place
// says: nothing, unless asked.
//
// A device may do what it is told later (package engine). Then an instruction is issued when the worker has
// told it and done at the event behind it, by which times, samples of memory and step marks go. Messages
// leave when their tensors are there; losses stay on the device until something is made of their minibatch's
// gradients; what sums beside the worker works in host memory and is landed by the worker. Type wait lists
// every place that waits.
//
// Updates that are validated later (schedule, post-validation) are made on copies. A norm over the limit has
// every stage take its update back and make it again, clipped: each by itself, from the norm that it has. The
// Program ends there, what was begun of the next step is thrown away, and another one goes on with that step.
//
// # Checkpoints
//
// A checkpoint is what a run that drains there leaves: all stages behind the updates of the same steps, with
// nothing in flight. As a rule it is written so: Checkpointing.Every ends a Program, and another one of CK alone
// follows. Periods of a stream are therefore part of the run.
//
// With Checkpointing.ByStage nothing is drained for it (PipeDream §4). The Program goes on over the end of an
// epoch, and each stage has a CK behind its own last update of it (lower.Saved), on its first replica: the
// weights there are those of a run that drained, bit for bit, since which version a minibatch reads, and which
// gradients an update takes, are decided by minibatches in front of it alone. What the stage has computed of the
// next epoch by then is in no weight yet. Hence the limits: an epoch ends where every stage's update does, on
// whole groups of replicas; only streams have it, since nothing is in flight behind a step of the others; and no
// layer may have running statistics, which move with forwards. A save changes no bit of the run itself.
//
// A stage writes its file into the epoch's draft and says so (control.Saved with its steps); it waits for
// nobody, and its device waits for the disk. The leader seals an epoch once all stages have written it and the
// losses of its steps are known to be finite, in the order of the epochs, while the Program goes on: Commit and
// Prune are orders that processes carry out meanwhile. A manifest is written last, so that a kill between stages
// leaves the epoch before, which all of them have. Drafts of later epochs are left alone by Prune, since fast
// stages may be there already; those that will not become checkpoints go as the run ends. A run that is to stop
// ends behind what it has begun, as ever, and saves there drained.
//
// # One worker holds the weights
//
// Under weight policy asp (schedule/server.go) the last worker is a server, with the optimizer; the others fetch the
// weights of each minibatch from it and give it gradients, in messages like any other, so that they may be in any
// processes. A step is a minibatch of one worker: two processes at most have a part of it, and steps end in no order;
// the leader says that they are whole in their order. The server notes each update with its number and that of the
// weights which its gradients were computed with; Timeline.Applied is these, of all steps, and Train.Replay of Config
// has a run make its updates in such an order, to the same bits. Evaluations, checkpoints and what a run leaves are
// the server's. Programs end there, and each begins with weights sent anew. Layers with running statistics are
// refused: each worker would have its own.
//
// # Ends
//
// A run always ends: the first error stops everybody, a panic in a worker becomes an error
// with its stack, and when nobody can move, or nothing has happened for a set time, the
// error says who waits for what.
//
// A process counts as lost when its Link ends or is silent (package control); when a connection ends to one of its
// workers, or to itself while files are read from it; when it does not answer or leave within Config.Watch.StallAfter;
// or when nothing happens for so long while it gets ready or carries out an order. Bytes that move are something that
// happens. The error, a control.LostError, says which process and what it has not done, on every process that is left.
// These wait a moment for their own devices, and no longer: whatever a device holds that has not come back by then is
// not given back under it, and the host process is to end. So it is where a device of the leader's own process hangs as
// it opens or at the end.
//
// A device that hangs while the run goes on cannot be told from one that is slow: Hooks.OnQuiet says so. A run that
// is to stop ends, with an error, once nothing has happened for Config.Watch.StallAfter.
package run
