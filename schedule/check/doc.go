// Package check proves of a Program, before anything runs, that it can run to its end.
//
// In: a Program, lowered or not. Out: a Report (messages, peaks of activations, versions of weights), or an
// Error that says who, where and what: the worker, the place in its list as it was written, and the line
// where the Program has a file.
//
// Proven: fields in range and on the worker that holds their stage (Validate); each micro-batch's forward and
// backward exactly once on each stage, everything an instruction needs made before it, each update once and
// behind all its gradients and collectives (tally); no deadlock, at any speed (replay); messages taken on the
// side of a drain or of a refusal on which they were sent (crossing). Besides: OutOfOrder finds sums whose
// bits depend on the order, Held a worker that would hold more than it may, Playable a Program too long to be
// looked at; InFlight says how many messages may lie on each edge.
//
// It imports schedule, schedule/machine and schedule/lower.
package check
