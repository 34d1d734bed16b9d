// Package schedule writes training as a Program and proves it before it runs.
//
// In: how many stages, workers and micro-batches, or a plan.Plan. Out: a
// Program, first of compute instructions alone (what a family writes), then
// lowered (Lower adds transfers, collectives and updates); its text; what Check
// found; and the Machine that says which worker may start its next
// instruction, which sim and run both drive.
//
// Families come from three kinds of writers: listRule, in which orders are data (how many
// forwards go first, how chunks take turns, how late weight gradients come); greedy and listing,
// which play the order in slots and fill bubbles with what is ready; and generators of their own for
// patterns that are neither. scheduletest writes random valid Programs for tests.
//
// Refused: orders that could block, micro-batches missing or repeated, stages on
// no worker, warm-up depths that deadlock; of a Program read from a file (ReadSource) with
// the line. It knows no clock and no tensor.
package schedule
