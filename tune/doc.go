// Package tune finds the plan that the simulator likes best.
//
// In: a profile, a cluster, a batch and whatever the user fixes. Out: a Plan with
// Predicted, LowerBound and Why filled in, and the ranked rivals. It asks plan for
// splits, schedule's registry for orders and sim for the time and memory of each,
// and never looks inside run.
// Refused: a batch that no profiled micro-batch size divides, memory limits that no
// candidate meets (with the smallest that would), overrides that contradict each other.
package tune
