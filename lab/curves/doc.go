// Package curves compares methods of training by the time they take to reach a target.
//
// In: trainings with their evaluations ([Trainings], one JSON line each), and the times of batches. Out: epochs to a
// target ([Metric]), how much faster one method reaches it than another ([SpeedupOf]), and what each worker did
// during a batch ([Shares]). Refused: trainings without evaluations, rounds that do not match, and files with
// invalid lines.
package curves
