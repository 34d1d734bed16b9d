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
// AvgPipe's two degrees, micro-batches and parallel pipelines, have a search of their own
// (TuneDegrees): its profiler (Observe), its predictor (Observation.Predict, equations 1 to 8) and
// the simulator beside that; a Machine, which the caller passes in, runs what is to be tried.
// A Contest is no search: it ranks every order under every weight policy on the same stages, and says
// why each is behind the best.
// Refused: a batch that no profiled micro-batch size divides, device types without costs,
// memory limits that no candidate meets (with the smallest that would), overrides that
// contradict each other; degrees below 1, and batches that they do not divide.
package tune
