// Package launch says which of several processes this one is, from what its launcher left in the environment.
//
// In: a list of environment variables, as os.Environ gives it, and nothing else. Out: a World: rank and size,
// rank and size on the host, the host, where rank 0 is met, where the token is, and which launcher said so.
// Refused, with the variables and their values: numbers that are none or contradict each other, half a set of
// variables, a world without a place to meet, and two launchers that contradict each other.
//
// # Launchers
//
// Read are the variables of millrace launch (MILLRACE_*), torchrun, Open MPI, MPICH and other Hydras (PMI),
// Slurm's srun, and of pods of an Indexed Job, a JobSet and a TrainJob. Without any of them a process is
// alone, a world of one.
//
// A launcher often starts another: mpirun in a Slurm job, torchrun in a pod. Several sets of variables are
// accepted where they say the same rank and size, or where one launcher started one process, or one process a
// host, and the other launcher as many hosts: it is then the other, the innermost, that counts. All else is
// refused; MILLRACE_LAUNCHER names the one that counts, or is none.
//
// # What no launcher says
//
// Pods of an Indexed Job and of a JobSet do not know how many they are: MILLRACE_WORLD_SIZE says it. Open MPI
// and MPICH over several hosts do not know where rank 0 is: MILLRACE_MASTER_ADDR says it, unless Slurm's list
// of hosts does. MILLRACE_MASTER_ADDR, MILLRACE_MASTER_PORT, MILLRACE_RUN_ID and MILLRACE_RESTART win over
// every launcher's. How many workers each process has is MILLRACE_WORKERS_PER_PROCESS's alone to say, and how many
// seconds processes wait for the last of them MILLRACE_WAIT's.
//
// torchrun listens on MASTER_PORT itself where TORCHELASTIC_USE_AGENT_STORE is True; the port is then the
// next one. Where a launcher names no port, it follows from the run's identity, below the range that systems
// hand out; where there is none of these either, it is DefaultPort.
//
// Connections are encrypted where MILLRACE_TLS is on, by certificates of the processes' own making, which the
// token vouches for; or by those in the files that MILLRACE_TLS_CERT and MILLRACE_TLS_KEY name. With
// MILLRACE_TLS_CA everybody must show one that an authority in that file has signed, whatever names it bears.
//
// # What whoever uses it must do
//
// Give every process's own environment; read the token from where Token says, never from an argument; and
// meet the others (package rendezvous), which finds ranks that are missing or there twice: no environment
// tells.
package launch
