// Package bench compares two runners of training steps fairly.
//
// In go two [Runner]s (millrace itself, or a [Rival], which is another process
// that speaks a line protocol); out comes a [Result]: the median of the ratios
// of alternating pairs with its 95 % interval, and the speed of each side.
// Refused: fewer pairs than an interval needs, steps that report no samples or
// no time, and rivals that answer anything else than one line of JSON.
//
// It also keeps trainings that were evaluated as they went on ([Trainings], a line of JSON
// each), and counts how many epochs they took to a target ([Metric]) and how much faster one
// method is to it than another ([SpeedupOf]).
//
// The package measures and counts; which workloads are compared, with which
// plan, is decided by whoever calls it.
package bench
