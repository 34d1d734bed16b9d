// Package bench defines the results of millrace-lab's benchmarks, and how they are computed and printed.
//
// In: plans, Timelines, results of package race, and the times that planners take. Out: comparisons with their
// intervals and bounds, and tables in Markdown. Refused: too few measurements for an interval, and a folder that lacks
// published profiles. The caller runs the trainings that are measured.
package bench
