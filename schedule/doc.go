// Package schedule writes training as a Program and proves it before it runs.
//
// In: how many stages, workers and micro-batches, or a plan.Plan. Out: a
// Program, first of compute instructions alone (what a family writes), then
// lowered (Lower adds transfers, collectives and updates); its text; what Check
// found; and the Machine that says which worker may start its next
// instruction, which sim and run both drive.
// Refused: orders that could block, micro-batches missing or repeated, stages on
// no worker, warm-up depths that deadlock. It knows no clock and no tensor.
package schedule
