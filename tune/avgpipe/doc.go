// Package avgpipe tunes AvgPipe's two degrees: micro-batches M and parallel pipelines N.
//
// Input: a Workload (a profile, a cluster, a partition of the model), the micro-batch sizes and the largest number of
// pipelines to try, and a Machine that runs trials, such as the simulator. Output: every setting of the grid, predicted
// by simulation and by the paper's equations 1 to 8 (Observe profiles, Observation.Predict predicts). The output also
// has each method's choice and its cost, and on request the results of trying all settings. The package also has the
// partition of the paper's section 6, the systems that the paper compares with (Baselines), and the best setting within
// a Budget. Pipelines take turns on a device, as in package run, unless a Workload runs their kernels side by side as
// in equation 2.
//
// Errors: degrees below 1, batches that the degrees do not divide, limits that no setting keeps to (LimitError),
// Timelines that lack what the equations need.
package avgpipe
