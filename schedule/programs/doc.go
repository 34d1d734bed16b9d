// Package programs makes the lowered Programs that run and sim execute.
//
// In: a plan with the layers that share a parameter, or a placement. Out: Build, so many steps of the plan;
// Evaluation, a number of micro-batches forward; Checkpoint, every stage saved. Beside a Program from a file
// there is no other way to one, so that what is simulated is what runs.
//
// Refused: what the plan's family or schedule/lower refuses. Build does not check what it makes: a family's
// orders pass check.Check by its tests.
//
// It imports schedule, schedule/family and schedule/lower, and of other rooms plan alone.
package programs
