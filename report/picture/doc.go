// Package picture draws Timelines on a terminal: a row for each worker, time to the right.
//
// In: a Timeline and a Frame: the screen, the clock of the axis, the part to draw. Out: an axis, rows that are no wider
// than the screen, and words for what they show, in one of two forms. Boxes are as papers draw schedules, a column for
// each slot of time: a computation begins with its letters and its micro-batch ("B3") and goes on as "=". They show the
// beginning where not all fits, and say where they stop. Letters always show all: in each column of the screen the kind
// that takes most of it. In both "·" is idle time, and colours only repeat what letters say.
//
// Its driver writes Axis, then each worker's Row (or all with Text), then Legend, once for what it has drawn.
//
// Refused: nothing. The Timeline must be one that trace.Validate takes.
package picture
