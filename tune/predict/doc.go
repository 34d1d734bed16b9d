// Package predict runs the simulator for one plan.
//
// Input: a profile, a cluster and a Plan. Output: the plan's Predicted (step, bubble, memory by device), a copy of the
// plan with other warm-ups K_i (WithDepths, Advanced), and the number of instructions that are simulated. The package
// does not search and does not change the given plan.
//
// Errors: plans with too many instructions to simulate (WorkError), device types and sizes without costs, plans that
// their schedule's family does not allow.
package predict
