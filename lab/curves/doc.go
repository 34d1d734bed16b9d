// Package curves compares methods of training by the time that they take to a target.
//
// In go trainings that were evaluated as they went on ([Trainings], a line of JSON each), and the times of batches;
// out come epochs to a target ([Metric]), how much faster one method is to it than another ([SpeedupOf]), and what
// each worker did during a batch ([Shares]). Refused: trainings without evaluations, rounds that do not match, files
// with lines that are no training.
package curves
