// Package draw plays a Program in slots of time, and draws boxes of time as papers do.
//
// In: a Program and how many slots each kind takes, or spans that somebody else has timed. Out: a grid, a row
// for each worker. It is slow and plain; for real costs ask sim, and draw its Timeline with Grid.
//
// Refused: a Program that does not pass check.Check, drawings wider than MaxColumns, spans of no worker.
//
// It imports schedule, schedule/machine, schedule/lower and schedule/check.
package draw
