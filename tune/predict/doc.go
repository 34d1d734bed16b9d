// Package predict runs the simulator for one plan.
//
// Input: a profile, a cluster and a Plan. Output: the plan's lowered Program, its Predicted (step, bubble, memory by
// device), the plan with other depths, and the number of instructions that are simulated. The package does not search
// and does not change the given plan.
//
// Errors: plans with more instructions than are simulated (WorkError), device types and sizes without costs, plans that
// their schedule's family does not allow.
package predict
