// Package launch finds out which of several processes this one is, from the environment that its launcher set.
//
// In: environment variables, in the form of os.Environ. Out: a World, with rank and size, rank and size on the host,
// the host, the address of rank 0, where the token is, and the launcher. Refused, with the variables and their values:
// numbers that are invalid or contradict each other, incomplete sets of variables, a world without an address for rank
// 0, and two launchers that contradict each other.
//
// # Launchers
//
// It reads the variables of millrace launch (MILLRACE_*), torchrun, Open MPI, MPICH and other Hydras (PMI), Slurm's
// srun, and the pods of an Indexed Job, a JobSet and a TrainJob. Without any of them the process is a world of one.
//
// A launcher often starts another: mpirun in a Slurm job, torchrun in a pod. Several sets of variables are accepted in
// two cases. Either they give the same rank and size. Or the outer launcher started one process, or one process per
// host, and the inner launcher has as many hosts or does not give their number; then the inner launcher counts. All
// other combinations are refused. MILLRACE_LAUNCHER names the launcher that counts, or is "none".
//
// # What launchers do not say
//
// Pods of an Indexed Job and of a JobSet do not know how many they are; MILLRACE_WORLD_SIZE gives the number. Open MPI
// and MPICH over several hosts do not know where rank 0 is. MILLRACE_MASTER_ADDR gives it, unless Slurm's list of hosts
// does. MILLRACE_MASTER_ADDR, MILLRACE_MASTER_PORT, MILLRACE_RUN_ID and MILLRACE_RESTART override the values of every
// launcher. Only MILLRACE_WORKERS_PER_PROCESS gives the number of workers of each process. Only MILLRACE_WAIT says how
// many seconds processes wait for the last of them.
//
// If TORCHELASTIC_USE_AGENT_STORE is True, torchrun itself listens on MASTER_PORT, and millrace uses the next port. If
// a launcher gives no port, the port is derived from the run's identity, below the range that systems assign to
// outgoing connections. Without an identity, and in pods, it is DefaultPort.
//
// If MILLRACE_TLS is on, connections are encrypted. The processes then make their own certificates, and prove by the
// token that they belong to the run. MILLRACE_TLS_CERT and MILLRACE_TLS_KEY name files with a certificate and its key
// to use instead; they turn encryption on by themselves. With MILLRACE_TLS_CA every process must show a certificate
// signed by an authority in that file; names are not checked.
//
// # Duties of the caller
//
// Pass every process's own environment. Read the token from where Token says, never from an argument. Meet the other
// processes (package rendezvous), which finds missing and duplicate ranks; no environment shows them.
package launch
