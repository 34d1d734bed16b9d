// Package draw draws boxes of time as papers draw schedules.
//
// In: spans, which somebody else has timed. Out: a grid of text, a row for each worker and a column for each
// slot of time.
//
// Refused: drawings wider than MaxColumns or of too many boxes, spans of no worker or without a length.
//
// It imports nothing of the room.
package draw
