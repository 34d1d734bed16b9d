// Package setup is what the processes of a run say to each other between their meeting and the run.
//
// In: a control.Link from rank 0 to each other process, and at these handlers by name. Rank 0 asks, a process
// does what is asked and answers, both as JSON; nobody else asks. Out: the same Links, over which the run then
// goes. Refused: questions without a handler, answers that nobody waits for, and whatever else is no business
// of this time.
//
// It knows nothing of what is asked.
//
// # Ends
//
// Begin is the last word before the run: what comes behind it on a Link waits for the run to Start it. Dismiss
// sends everybody away instead, with an error or, where nothing is left to do, without. One process's error is
// every process's: whoever asked gets it as an Error that names the process, and dismisses all with it.
//
// A process that is to stop tells rank 0 and waits for its word, and rank 0's context ends with a StoppedError;
// where a Link ends, with a control.LostError. All are dismissed with that at once, whatever rank 0 is at. An
// error goes from process to process with its class; one that says that a process was stopped or lost stays one.
//
// # What whoever uses it must do
//
// Rank 0: ask each process one thing at a time; work under Leader.Context; end with Begin or Dismiss. The
// others: call Follower.Wait once, and behind it use the Link or leave. A handler returns when its context
// ends.
package setup
