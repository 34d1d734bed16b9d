// Package picture draws Timelines on a terminal: a row for each worker, time to the right.
//
// In: a Timeline and a Frame: the screen, the clock of the axis, the time range. Out: an axis, rows that fit the
// screen, and an explanation. There are two forms. Boxes divides time into slots, as drawings in papers do. A
// computation begins with its letters and its micro-batch ("B3") and continues as "=". If the drawing is too wide, it
// shows the beginning and says where it ends. Letters always shows everything: each column has the letter of the kind
// that takes most of it. In both forms "·" is idle time, and colours only repeat what the letters say.
//
// The caller writes Axis, then each worker's Row (or all rows with Text), and at the end Legend once.
//
// Refused: nothing. The Timeline must be one that trace.Validate takes.
package picture
