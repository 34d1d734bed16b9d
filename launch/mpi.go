package launch

import "fmt"

// readOpenMPI reads what Open MPI's mpirun sets for each process.
func readOpenMPI(env environment) (*claim, error) {
	const rank, size = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"
	const localRank, localSize = "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"
	return env.readMPI(rank, size, localRank, localSize, env.first("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
		env.first("SLURMD_NODENAME", "PMIX_HOSTNAME"))
}

// readPMI reads what MPICH's mpiexec (Hydra), Intel MPI, Cray's PALS and Slurm's --mpi=pmi2 set for each process.
func readPMI(env environment) (*claim, error) {
	localRank, localSize := "MPI_LOCALRANKID", "MPI_LOCALNRANKS"
	if !env.has(localRank) {
		localRank, localSize = "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"
	}
	return env.readMPI("PMI_RANK", "PMI_SIZE", localRank, localSize, env.first("PMI_JOBID", "PALS_APID", "SLURM_JOB_ID"),
		env["MPIR_CVAR_CH3_INTERFACE_HOSTNAME"])
}

// readMPI reads the variables of an MPI implementation, by their names.
func (env environment) readMPI(rank, size, localRank, localSize, id, host string) (*claim, error) {
	if !env.has(rank) && !env.has(size) {
		return nil, nil
	}
	if err := env.together(rank, size); err != nil {
		return nil, err
	}
	n := numbers{env: env}
	c := &claim{names: []string{rank, size, localRank, localSize}}
	c.Size = n.must(size, 1, MaxSize)
	c.Rank = n.must(rank, 0, max(0, c.Size-1))
	c.LocalSize = n.may(localSize, 1, max(1, c.Size), Unknown)
	c.LocalRank = n.may(localRank, 0, max(0, c.Size-1), Unknown)
	c.Node, c.Nodes, c.RunID, c.Host = Unknown, Unknown, id, host
	c.Restart = n.may("SLURM_RESTART_COUNT", 0, MaxSize, 0) // restarts of the allocation that mpirun runs in
	if n.err != nil {
		return nil, n.err
	}
	if c.LocalSize == c.Size {
		c.Node, c.Nodes = 0, 1
	} else if hosts := env["SLURM_JOB_NODELIST"]; hosts != "" && !env.arranged() {
		// mpirun fills the hosts of an allocation in their order, so rank 0 is on the first host.
		list, err := parseHosts(hosts)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", env.shown("SLURM_JOB_NODELIST"), err)
		}
		c.Address = list.name(0)
	}
	return c, c.check(env, localRank, localSize)
}
