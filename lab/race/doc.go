// Package race compares two runners of training steps fairly.
//
// In go two [Runner]s (millrace itself, or a [Rival], which is another process
// that speaks a line protocol); out comes a [Result]: the median of the ratios
// of alternating pairs with its 95 % interval, and the speed of each side.
// Refused: fewer pairs than an interval needs, steps that report no samples or
// no time, and rivals that answer anything else than one line of JSON.
//
// The package measures and counts; which workloads are compared, with which
// plan, is decided by whoever calls it.
package race
