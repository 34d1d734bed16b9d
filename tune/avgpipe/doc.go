// Package avgpipe tunes AvgPipe's two degrees: micro-batches M and parallel pipelines N.
//
// In: a Workload (a profile, a cluster, a partition of the model), the sizes of micro-batches
// and the most pipelines to try, and a Machine, which runs what is to be tried; the simulator
// is one. Out: every setting of the grid as predicted by simulation and by the paper's
// equations 1 to 8 (Observe profiles, Observation.Predict predicts), each method's choice and
// what it cost, and on request what trying all of them showed. Beside that: the partition of
// the paper's section 6, the systems that it compares itself with (Baselines), and the best
// setting within a Budget. Pipelines take turns on a device, as in run, unless a Workload says
// that it runs their kernels side by side, as equation 2 has it.
//
// Refused: degrees below 1, batches that they do not divide, limits that no setting keeps to
// (LimitError), Timelines that do not say what the equations need.
package avgpipe
