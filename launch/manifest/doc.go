// Package manifest writes the files by which other launchers start a run: for Slurm, mpirun, and Kubernetes (an Indexed
// Job, a JobSet, a TrainJob).
//
// In: a Spec, with the command of every process, the number of processes, their hosts, the resources of each process,
// and the number of restarts. Out: the text of a file. Everything is a pure function: it asks no host, cluster or
// clock, and the same Spec gives the same text. Refused: what the kind of file cannot express, such as several
// processes in a pod, names that it does not allow, and secrets in a command line.
//
// # Restarts
//
// The exit code decides whether the run starts again. After 3 (a peer was lost) and 137 (killed) all processes start
// again, up to Spec.Restarts times. Each goes on from the last complete checkpoint, as train does by itself. The same
// holds for 129, 130 and 143 (told to stop) in pods, which are told to stop when their node is drained. Under Slurm and
// mpirun the run ends if all failed processes have one of the codes 129, 130 and 143, since the user or the time limit
// stopped it. Every other code ends the run for good, including the code of a crash. Kubernetes applies these rules
// through a podFailurePolicy and JobSet's rules. Slurm and mpirun return one code for all ranks. So a process that
// fails there leaves a file that says how it failed.
//
// A process that hangs does not block the run for ever. Open MPI ends the other processes itself when one fails. Slurm
// ends the processes that still run minutes after the first has ended. Hydra waits for all processes, so the script
// ends Hydra a while after the first failure.
//
// # Signals
//
// Every kind of launcher sends SIGTERM, and waits for Spec.Grace before it kills a process. In that time the process
// ends its step and saves a checkpoint.
//
// # The token
//
// No file contains the token. Kubernetes takes it from a Secret, by name; the other kinds take it from a file that
// other users cannot read.
package manifest
