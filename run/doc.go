// Package run executes Programs on real tensors and the real clock.
//
// In: a model, a plan, an engine, data, an optimizer. Out: a trained model in
// checkpoints, and a trace.Timeline of what happened.
// Refused: plans for another model, Programs that do not pass Check, checkpoints of another
// model or batch; during a run, a loss or a gradient norm that is not finite.
//
// Every worker is a goroutine locked to an OS thread for life, with an engine Device of its
// own. It asks the gate (schedule/machine), which the simulator asks too, whether its next instruction may start,
// executes it, and says so; nobody else decides. One mutex guards what the workers of a process share; a worker
// that must wait sleeps until an event concerns it. Tensors go through package wire. Transfers and collectives run
// beside the workers; a collective's goroutine touches memory that the worker has lent it and no Device.
//
// Updates that are validated later (schedule, post-validation) are made on copies. A norm over the
// limit has every stage take its update back and make it again, clipped; the Program ends
// there, what was begun of the next step is thrown away, and another Program goes on with that step.
//
// A run always ends: the first error stops everybody, a panic in a worker becomes an error
// with its stack, and when nobody can move, or nothing has happened for a set time, the
// error says who waits for what.
package run
