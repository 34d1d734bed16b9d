// Package bench defines the results of millrace-lab's benchmarks, and how they are computed and printed.
//
// In: plans, Timelines, results of package race and times of planners. Out: comparisons with their intervals, the
// bounds they are compared with, and tables in Markdown. Refused: too few measurements for an interval, and
// published profiles that are missing in a folder. The caller runs the trainings that are measured.
package bench
