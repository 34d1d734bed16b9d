// Package manifest writes the files by which other launchers start a run: for Slurm, mpirun, and Kubernetes
// (an Indexed Job, a JobSet, a TrainJob).
//
// In: a Spec, what every process runs, how many there are and on which hosts, what each needs, how often the
// run may start again. Out: the text of a file. Everything is a pure function: no host, cluster or clock is
// asked, and the same Spec is the same text. Refused: what the kind cannot say, such as several processes in
// a pod, names that it does not allow, and secrets in a command line.
//
// # Restarts
//
// Exit codes tell what to do. 3 (a peer was lost) and 137 (killed) start all processes again, up to Spec.Restarts
// times; each goes on from the last whole checkpoint, as train does by itself. So do 129, 130 and 143 (told to
// stop) of pods, which are told as their node is drained; under Slurm and mpirun it is the run that is told, by
// its user or as its time is over, and it ends. Every other code ends the run for good, a crash too. Kubernetes
// applies this by a podFailurePolicy and JobSet's rules. Under Slurm and mpirun, whose own code is some rank's, a
// process that fails leaves a mark that says which of these it was.
//
// A process that hangs holds nothing for ever. Open MPI ends the others itself where one fails. Slurm ends those
// that go on minutes behind the first that has ended. Hydra waits, so that the script for it has it end a while
// behind the first failure.
//
// # Signals
//
// Every kind gives SIGTERM Spec.Grace before it kills, in which a step ends and is saved.
//
// # The token
//
// No file holds it. Kubernetes takes it from a Secret by its name, the others from a file that only its owner
// reads.
package manifest
