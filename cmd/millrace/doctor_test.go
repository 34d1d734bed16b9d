package main

import (
	"strings"
	"testing"
)

// doctor names its launcher, and says what is wrong with the launcher's variables.
func TestDoctorKnowsItsLauncher(t *testing.T) {
	for env, want := range map[string]struct {
		value string
		ok    bool
	}{
		"":                              {"none: this process is alone", true},
		"SLURM_JOB_ID=1 SLURM_NTASKS=4": {"srun did not start this process", false},
		"RANK=1 WORLD_SIZE=x":           {"launch: torchrun: WORLD_SIZE=x; it is a whole number", false},
		"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 MILLRACE_TOKEN_FILE=/t MILLRACE_WORKERS_PER_PROCESS=3": {
			"rank 1 of 2, 1 of 2 on its host, started by MPICH (PMI); 6 workers in all, 3 in each process; " +
				"rank 0 is met at 127.0.0.1:29600, token in " +
				"file /t", true},
	} {
		f := launched(strings.Fields(env))
		if !strings.Contains(f.Value, want.value) || f.OK != want.ok || f.OK == (f.Remedy != "") {
			t.Errorf("%q: %+v; want %q", env, f, want.value)
		}
	}
}
