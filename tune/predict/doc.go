// Package predict asks the simulator about one plan.
//
// In: a profile, a cluster and a Plan. Out: the plan's lowered Program, its Predicted (step,
// bubble, memory by device), the plan with other depths, and how many instructions all that
// plays. It searches nothing and changes no plan that it is given.
//
// Refused: plans of more micro-batches than are simulated (WorkError), device types and sizes
// without costs, plans that their schedule's family does not admit.
package predict
