// Package tune finds the plan that the simulator likes best.
//
// In: a profile, a cluster, a batch, a time and whatever the user fixes. Out: a Plan with
// Predicted, LowerBound and Why filled in, the ranked rivals, and what explains it: memory by
// use, the bottleneck, what better hardware would do. It asks every planner of package plan,
// cuts layers itself for every family of schedule's registry, moves cuts, devices, depths,
// recompute and micro-batches by estimates, and lets sim decide; it never looks inside run.
// Families that update without a flush join where the request says so; for this machine only
// what run executes is looked at (Request.Runnable).
//
// Families and weight policies are asked for properties, never for names.
//
//	tune/predict   what the simulator says of one plan, and how much work that is
//	tune/avgpipe   AvgPipe's two degrees, micro-batches and parallel pipelines
//	tune/contest   every order under every weight policy on the same stages, ranked
//
// Refused: a batch that no profiled micro-batch size divides, device types without costs,
// memory limits that no candidate meets (with the smallest that would), overrides that
// contradict each other.
package tune
