// Package check proves that a Program can run to its end, before anything runs.
//
// In: a Program, lowered or not. Out: a Report (messages, peaks of activations, versions of weights), or an Error.
// The Error names the worker, the place in its list as written, the fault, and the line if the Program was read from
// a file.
//
// Proven: fields are in range and on a worker that holds their stage (Validate). Each stage computes each
// micro-batch's forward and backward exactly once, with everything made before it is needed, and each update once
// after all its gradients and collectives (tally). There is no deadlock at any speed (replay). Messages are received
// on the same side of a drain or refusal as they are sent (crossing). In addition: OutOfOrder finds sums whose bits
// depend on the order, Held finds a worker that would hold more than it may, Playable refuses a Program that is too
// long, and InFlight returns how many messages may be on each edge.
//
// It imports schedule, schedule/machine and schedule/lower.
package check
