// Package programs makes the lowered Programs that run and sim execute.
//
// In: a plan with the layers that share a parameter, or a placement. Out: Build and AtLeast, for steps of a plan;
// Evaluation, for forwards of some micro-batches; Checkpoint, which saves every stage. The Program of a plan is made
// here both for a run and for its prediction, so the simulator executes the same Program as the run. (Shapes, the
// schedule commands and the reproductions make their own.)
//
// Refused: what the plan's family or schedule/lower refuses. Build does not check its result; tests show that every
// family's orders pass check.Check.
//
// It imports schedule, schedule/family and schedule/lower, and outside of schedule only plan.
package programs
