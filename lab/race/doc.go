// Package race compares two runners of training steps fairly.
//
// In: two [Runner]s (millrace itself, or a [Rival], which is another process that speaks a line protocol). Out: a
// [Result], with the median of the ratios of alternating pairs, its 95 % interval, and the speed of each side.
// Refused: fewer pairs than an interval needs, steps that report no samples or no time, and rivals that answer
// anything but one line of JSON.
//
// The package measures and computes. The caller chooses the workloads and the plans.
package race
