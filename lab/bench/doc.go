// Package bench is what the benchmarks of millrace-lab count, and how they tell it.
//
// In go plans, Timelines, results of package race and times of planners; out come comparisons with their intervals,
// the bounds that they are held against, and tables of Markdown. Refused: too few measurements for an interval, and
// published profiles that a folder does not have. Whoever calls it starts the trainings that are measured: this package
// starts none.
package bench
