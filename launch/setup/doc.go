// Package setup carries questions and answers between the processes of a run, from their meeting until the run begins.
//
// In: a control.Link from rank 0 to each other process, and in those processes a handler for each question, by name.
// Only rank 0 asks. A process does what is asked and answers, both in JSON. Out: the same Links, for use by the run.
// Refused: questions without a handler, a second answer before the first is taken, and every other kind of message.
//
// The package does not know the meaning of any question.
//
// # The end of setup
//
// Begin sends the last message before the run. Later messages on a Link wait until the run calls the Link's Start.
// Dismiss ends the setup without a run: with an error, or without one if nothing is left to do. An error of one process
// is reported in all processes. Rank 0 gets it as an Error that names the process, and dismisses all processes with it.
//
// A process that is told to stop reports that to rank 0 and waits for rank 0's decision. Rank 0's context then ends
// with a StoppedError. If a Link ends, the context ends with a control.LostError. In both cases all processes are
// dismissed with that error at once, whatever rank 0 is doing. Each error is sent to other processes together with its
// class. So an error which says that a process was stopped or lost keeps its type.
//
// # Duties of the caller
//
// Rank 0: ask each process one question at a time; work under Leader.Context; end with Begin or Dismiss. The others:
// call Follower.Wait once, then use the Link or leave. A handler returns when its context ends.
package setup
