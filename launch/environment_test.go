package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// lines returns the words of a text, one variable each.
func lines(text string) []string { return strings.Fields(text) }

// These are Slurm's variables of task 3 of 5 on two hosts, as slurmstepd sets them. A batch script has only slurmBatch,
// without the variables of the step.
const (
	slurmBatch = `SLURM_JOB_ID=4711 SLURM_JOBID=4711 SLURM_JOB_NODELIST=gnode[08-09] SLURM_NODELIST=gnode[08-09]
SLURM_JOB_NUM_NODES=2
SLURM_NNODES=2 SLURM_NTASKS=5 SLURM_NPROCS=5 SLURM_TASKS_PER_NODE=3,2 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0
SLURMD_NODENAME=gnode08 SLURM_SUBMIT_DIR=/home/u SLURM_JOB_PARTITION=long SLURM_GTIDS=0`
	slurmTask = `SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_STEP_NODELIST=gnode[08-09] SLURM_STEP_NUM_NODES=2
SLURM_STEP_NUM_TASKS=5
SLURM_STEP_TASKS_PER_NODE=3,2 SLURM_PROCID=3 SLURM_LOCALID=0 SLURM_NODEID=1 SLURMD_NODENAME=gnode09 SLURM_GTIDS=3,4
SLURM_LAUNCH_NODE_IPADDR=10.19.0.68 SLURM_SRUN_COMM_PORT=37564 ` + slurmBatch
	slurmOneAHost = `SLURM_JOB_ID=5 SLURM_STEP_ID=2 SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_NUM_NODES=2
SLURM_STEP_NUM_TASKS=2
SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NODEID=1 SLURMD_NODENAME=n2`
	interactive = `SLURM_JOB_ID=1720714 SLURM_STEPID=4294967290 SLURM_STEP_ID=4294967290 SLURM_PROCID=0
SLURM_LOCALID=0 SLURM_NODEID=0
SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1 SLURM_NTASKS=8 SLURM_NODELIST=GPU71E4 SLURM_JOB_NODELIST=GPU71E4`
)

// torchrun has torchrun's variables of rank 5, which is local rank 1 of 4 on the second of two hosts. MASTER_PORT is
// the port on which torchrun itself listens.
const torchrun = `LOCAL_RANK=1 RANK=5 GROUP_RANK=1 ROLE_RANK=5 ROLE_NAME=default LOCAL_WORLD_SIZE=4 WORLD_SIZE=8
GROUP_WORLD_SIZE=2
ROLE_WORLD_SIZE=8 MASTER_ADDR=node-a MASTER_PORT=29500 TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_MAX_RESTARTS=3
TORCHELASTIC_RUN_ID=job7 TORCHELASTIC_USE_AGENT_STORE=True TORCH_NCCL_ASYNC_ERROR_HANDLING=1`

// These are variables of pods in Kubernetes.
const (
	trainPod = `PET_NNODES=4 PET_NPROC_PER_NODE=1 PET_NODE_RANK=2 PET_MASTER_ADDR=gpt-node-0-0.gpt PET_MASTER_PORT=29500
JOB_COMPLETION_INDEX=2 HOSTNAME=gpt-node-0-2`
	jobSetPod = `JOB_COMPLETION_INDEX=3 HOSTNAME=gpt-workers-0-3 JOBSET_NAME=gpt REPLICATED_JOB_NAME=workers
MILLRACE_WORLD_SIZE=4
MILLRACE_RESTART=1`
	indexedPod = `JOB_COMPLETION_INDEX=1 HOSTNAME=gpt-1 MILLRACE_WORLD_SIZE=2 MILLRACE_MASTER_ADDR=gpt-0.gpt
KUBERNETES_SERVICE_HOST=10.96.0.1`
)

const (
	openMPI = `OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2
OMPI_COMM_WORLD_NODE_RANK=1 OMPI_UNIVERSE_SIZE=4 PMIX_RANK=3 PMIX_NAMESPACE=2839150593 OMPI_MCA_orte_ess_node_rank=1`
	openMPIHere = `OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1
OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=1
PMIX_NAMESPACE=2839150593`
	hydra     = `PMI_RANK=4 PMI_SIZE=5 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 PMI_FD=8`
	hydraHere = `PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 PMI_FD=8`
	pals      = `PMI_RANK=9 PMI_SIZE=16 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=8 PALS_APID=a1b2 PALS_RANKID=9`
	ours      = `MILLRACE_RANK=1 MILLRACE_WORLD_SIZE=2 MILLRACE_LOCAL_RANK=1 MILLRACE_LOCAL_SIZE=2 MILLRACE_NODE=0
MILLRACE_NODES=1
MILLRACE_MASTER_ADDR=127.0.0.1 MILLRACE_MASTER_PORT=40123 MILLRACE_RUN_ID=ab12 MILLRACE_RESTART=1
MILLRACE_TOKEN=0123456789abcdef`
)

// derived, as the port of a case, means the port that is derived from the run's identity.
const derived = -2

func TestWhatLaunchersSay(t *testing.T) {
	for _, c := range []struct {
		name, env string
		want      World
	}{
		{"nothing", "PATH=/bin HOME=/root", World{Launcher: None, Size: 1, LocalSize: 1, Nodes: 1}},
		{"ours", ours, World{Launcher: Millrace, Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Nodes: 1, Address: "127.0.0.1",
			Port: 40123, RunID: "ab12", Restart: 1, Token: Token{Variable: TokenVar}}},
		{"workers alone", "MILLRACE_WORKERS_PER_PROCESS=3", World{Launcher: None, Size: 1, LocalSize: 1, Nodes: 1,
			WorkersPerProcess: 3}},
		{"a time to wait", "MILLRACE_WAIT=90", World{Launcher: None, Size: 1, LocalSize: 1, Nodes: 1,
			Wait: 90 * time.Second}},
		{"ours by hand", "MILLRACE_RANK=0 MILLRACE_WORLD_SIZE=3 MILLRACE_MASTER_ADDR=fe80::1 MILLRACE_TOKEN_FILE=/t", World{
			Launcher: Millrace, Size: 3, LocalRank: Unknown, LocalSize: Unknown, Node: Unknown, Nodes: Unknown,
			Address: "fe80::1",
			Port:    DefaultPort, Token: Token{File: "/t"}}},
		{"torchrun", torchrun, World{Launcher: Torchrun, Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Node: 1, Nodes: 2,
			Address: "node-a", Port: 29501, RunID: "job7", Restart: 2}},
		{"torchrun that does not listen", strings.Replace(torchrun, "STORE=True", "STORE=False", 1),
			World{Launcher: Torchrun, Rank: 5,
				Size: 8, LocalRank: 1, LocalSize: 4, Node: 1, Nodes: 2, Address: "node-a", Port: 29500, RunID: "job7", Restart: 2}},
		{"a PyTorchJob's pod", "RANK=1 WORLD_SIZE=3 MASTER_ADDR=job-master-0 MASTER_PORT=23456 PYTHONUNBUFFERED=0", World{
			Launcher: Torchrun, Rank: 1, Size: 3, LocalRank: Unknown, LocalSize: Unknown, Node: Unknown, Nodes: Unknown,
			Address: "job-master-0", Port: 23456}},
		{"srun", slurmTask, World{Launcher: Slurm, Rank: 3, Size: 5, LocalRank: 0, LocalSize: 2, Node: 1, Nodes: 2,
			Host:    "gnode09",
			Address: "gnode08", Port: derived, RunID: "4711.0"}},
		{"srun by a file of hosts", slurmTask + " SLURM_DISTRIBUTION=arbitrary MILLRACE_MASTER_ADDR=gnode09", World{
			Launcher: Slurm, Rank: 3, Size: 5, LocalSize: 2, Node: 1, Nodes: 2, Host: "gnode09", Address: "gnode09",
			Port: derived, RunID: "4711.0"}},
		{"srun after a requeue", slurmTask + " SLURM_RESTART_COUNT=2", World{Launcher: Slurm, Rank: 3, Size: 5,
			LocalSize: 2, Node: 1,
			Nodes: 2, Host: "gnode09", Address: "gnode08", Port: derived, RunID: "4711.0", Restart: 2}},
		{"srun on one host", `SLURM_JOB_ID=4 SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1
SLURM_NODEID=0
SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=2
SLURM_STEP_NODELIST=n7`, World{Launcher: Slurm, Rank: 1, Size: 2, LocalRank: 1,
			LocalSize: 2, Nodes: 1, Address: "127.0.0.1", Port: derived, RunID: "4.1"}},
		{"srun with PMI2", slurmTask + " PMI_RANK=3 PMI_SIZE=5 PMI_FD=13 PMI_JOBID=4711.0", World{Launcher: MPICH,
			Within: []Launcher{Slurm},
			Rank:   3, Size: 5, LocalRank: 0, LocalSize: 2, Node: 1, Nodes: 2, Host: "gnode09", Address: "gnode08",
			Port:  derived,
			RunID: "4711.0"}},
		{"a batch script without srun", slurmBatch, World{Launcher: None, Size: 1, LocalSize: 1, Nodes: 1,
			Note: "the Slurm job has SLURM_NTASKS=5, but srun did not start this process: it is alone"}},
		{"a shell of salloc", interactive, World{Launcher: None, Size: 1, LocalSize: 1, Nodes: 1,
			Note: "the Slurm job has SLURM_NTASKS=8, but srun did not start this process: it is alone"}},
		{"mpirun in a batch script", slurmBatch + " " + openMPI, World{Launcher: OpenMPI, Rank: 3, Size: 4, LocalRank: 1,
			LocalSize: 2,
			Node:      Unknown, Nodes: Unknown, Host: "gnode08", Address: "gnode08", Port: derived, RunID: "2839150593"}},
		{"mpirun whose daemon srun started", slurmOneAHost + " SLURM_JOB_NODELIST=n[0-2] " + openMPI, World{Launcher: OpenMPI,
			Within: []Launcher{Slurm}, Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Node: Unknown, Nodes: Unknown, Host: "n2",
			Address: "n0", Port: derived, RunID: "2839150593"}},
		{"torchrun on each host of srun", slurmOneAHost + " " + torchrun, World{Launcher: Torchrun,
			Within: []Launcher{Slurm}, Rank: 5,
			Size: 8, LocalRank: 1, LocalSize: 4, Node: 1, Nodes: 2, Host: "n2", Address: "node-a", Port: 29501, RunID: "job7",
			Restart: 2}},
		{"torch's variables made of Slurm's", slurmTask + " RANK=3 WORLD_SIZE=5 LOCAL_RANK=0 MASTER_ADDR=gnode08 " +
			"MASTER_PORT=12345",
			World{Launcher: Torchrun, Within: []Launcher{Slurm}, Rank: 3, Size: 5, LocalRank: 0, LocalSize: 2, Node: 1, Nodes: 2,
				Host: "gnode09", Address: "gnode08", Port: 12345, RunID: "4711.0"}},
		{"Open MPI", openMPI + " MILLRACE_MASTER_ADDR=a", World{Launcher: OpenMPI, Rank: 3, Size: 4, LocalRank: 1,
			LocalSize: 2,
			Node:      Unknown, Nodes: Unknown, Address: "a", Port: derived, RunID: "2839150593"}},
		{"Open MPI on one host", openMPIHere, World{Launcher: OpenMPI, Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Nodes: 1,
			Address: "127.0.0.1", Port: derived, RunID: "2839150593"}},
		{"MPICH on one host", hydraHere, World{Launcher: MPICH, Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Nodes: 1,
			Address: "127.0.0.1", Port: DefaultPort}},
		{"MPICH", hydra + " MILLRACE_MASTER_ADDR=10.0.0.7 MILLRACE_MASTER_PORT=999", World{Launcher: MPICH, Rank: 4,
			Size: 5, LocalRank: 1,
			LocalSize: 2, Node: Unknown, Nodes: Unknown, Address: "10.0.0.7", Port: 999}},
		{"Cray PALS", pals + " MILLRACE_MASTER_ADDR=x1000c0", World{Launcher: MPICH, Rank: 9, Size: 16, LocalRank: 1,
			LocalSize: 8,
			Node:      Unknown, Nodes: Unknown, Address: "x1000c0", Port: derived, RunID: "a1b2"}},
		{"an Indexed Job", indexedPod, World{Launcher: IndexedJob, Rank: 1, Size: 2, LocalSize: 1, Node: 1, Nodes: 2,
			Host:    "gpt-1",
			Address: "gpt-0.gpt", Port: DefaultPort}},
		{"a JobSet", jobSetPod, World{Launcher: JobSet, Rank: 3, Size: 4, LocalSize: 1, Node: 3, Nodes: 4,
			Host:    "gpt-workers-0-3",
			Address: "gpt-workers-0-0.gpt", Port: DefaultPort, RunID: "gpt", Restart: 1}},
		{"a JobSet of two Jobs", strings.ReplaceAll(jobSetPod, "INDEX=3", "INDEX=1") +
			" JOB_GLOBAL_INDEX=1 GLOBAL_REPLICAS=2 MILLRACE_MASTER_ADDR=gpt-a-0-0.gpt", World{Launcher: JobSet, Rank: 3,
			Size: 4, LocalSize: 1,
			Node: 3, Nodes: 4, Host: "gpt-workers-0-3", Address: "gpt-a-0-0.gpt", Port: DefaultPort, RunID: "gpt", Restart: 1}},
		{"a TrainJob", trainPod, World{Launcher: TrainJob, Rank: 2, Size: 4, LocalSize: 1, Node: 2, Nodes: 4,
			Host:    "gpt-node-0-2",
			Address: "gpt-node-0-0.gpt", Port: 29500}},
		{"torchrun in a TrainJob", strings.Replace(trainPod, "PER_NODE=1", "PER_NODE=2", 1) + ` RANK=5 WORLD_SIZE=8
LOCAL_RANK=1
LOCAL_WORLD_SIZE=2 GROUP_RANK=2 GROUP_WORLD_SIZE=4 MASTER_ADDR=gpt-node-0-0.gpt MASTER_PORT=29500
TORCHELASTIC_USE_AGENT_STORE=True
TORCHELASTIC_RUN_ID=none`, World{Launcher: Torchrun, Within: []Launcher{TrainJob}, Rank: 5, Size: 8, LocalRank: 1,
			LocalSize: 2, Node: 2,
			Nodes: 4, Host: "gpt-node-0-2", Address: "gpt-node-0-0.gpt", Port: 29501, RunID: "none"}},
		{"ours in a shell of srun", "SLURM_JOB_ID=4 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 " +
			"SLURM_STEP_NODELIST=n1 " + ours,
			World{Launcher: Millrace, Within: []Launcher{Slurm}, Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Nodes: 1,
				Address: "127.0.0.1", Port: 40123, RunID: "ab12", Restart: 1, Token: Token{Variable: TokenVar}}},
		{"the one that is named", slurmTask + " RANK=0 WORLD_SIZE=2 MILLRACE_LAUNCHER=slurm", World{Launcher: Slurm,
			Rank: 3, Size: 5,
			LocalSize: 2, Node: 1, Nodes: 2, Host: "gnode09", Address: "gnode08", Port: derived, RunID: "4711.0"}},
		{"none by name", slurmTask + " RANK=9 MILLRACE_LAUNCHER=none", World{Launcher: None, Size: 1, LocalSize: 1,
			Nodes: 1}},
		{"each pod alone", "JOB_COMPLETION_INDEX=7 MILLRACE_LAUNCHER=none", World{Launcher: None, Size: 1, LocalSize: 1,
			Nodes: 1}},
		{"empty is not set", "RANK= WORLD_SIZE= MILLRACE_TOKEN=", World{Launcher: None, Size: 1, LocalSize: 1, Nodes: 1}},
		{"the first counts", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=7 RANK=1", World{Launcher: Torchrun, Size: 2,
			LocalRank: Unknown,
			LocalSize: Unknown, Node: Unknown, Nodes: Unknown, Address: "a", Port: 7}},
	} {
		got, err := FromEnv(lines(c.env))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if c.want.Port == derived && got.Port >= FirstPort && got.Port < FirstPort+Ports {
			c.want.Port = got.Port
		}
		if !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.name, *got, c.want)
		}
	}
}

// Variables that contradict each other, are not numbers or are missing are refused, with names and values.
func TestWhatIsRefused(t *testing.T) {
	for _, c := range []struct {
		env  string
		want []string
	}{
		{"RANK=3", []string{"torchrun", "RANK=3", "WORLD_SIZE is not set"}},
		{"WORLD_SIZE=3", []string{"WORLD_SIZE=3", "RANK is not set"}},
		{"RANK=4 WORLD_SIZE=4", []string{"RANK=4; it is a whole number from 0 to 3"}},
		{"RANK=-1 WORLD_SIZE=4", []string{"RANK=-1;"}},
		{"MILLRACE_WAIT=1m", []string{"MILLRACE_WAIT=1m; it is a whole number from 1"}},
		{"MILLRACE_WORKERS_PER_PROCESS=0", []string{"MILLRACE_WORKERS_PER_PROCESS=0; it is a whole number from 1"}},
		{"RANK=+1 WORLD_SIZE=4", []string{"RANK=+1;"}},
		{"RANK=1 WORLD_SIZE=99999999999999999999", []string{"WORLD_SIZE=99999999999999999999;"}},
		{"RANK=1 WORLD_SIZE=four", []string{"WORLD_SIZE=four;"}},
		{"RANK=3 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", []string{"rank 3 of 4 in all is 2 of 2", "LOCAL_RANK=2"}},
		{"RANK=1 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=4", []string{"rank 1 of 4 in all is 2 of 4", "LOCAL_RANK=2"}},
		{"RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", []string{"torchrun says rank 1 of 4 over several hosts",
			MasterAddrVar}},
		{"RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=0", []string{"MASTER_PORT=0; it is a whole number from 1 to 65535"}},
		{"RANK=1 WORLD_SIZE=4 MASTER_ADDR=a:29500", []string{"met at host a:29500; give the port apart", MasterPortVar}},
		{"RANK=1 WORLD_SIZE=4 MASTER_ADDR=http://a", []string{"http://a; that is no name or address"}},
		{"RANK=1 WORLD_SIZE=4 MASTER_ADDR=" + strings.Repeat("a", 300), []string{"is no name or address"}},
		{"RANK=1 WORLD_SIZE=2 MASTER_ADDR=a TORCHELASTIC_RUN_ID=" + strings.Repeat("a", 300), []string{"at most 256 bytes"}},
		{slurmTask + " RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", []string{"two launchers contradict each other: torchrun says " +
			"rank 0 of 2 (RANK=0 " +
			"WORLD_SIZE=2), Slurm says rank 3 of 5 (SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=5 SLURM_LOCALID=0)",
			"MILLRACE_LAUNCHER=torchrun, slurm or none"}},
		{slurmTask + " RANK=3 WORLD_SIZE=5 MASTER_ADDR=a LOCAL_RANK=1", []string{"two launchers contradict each other"}},
		{slurmTask + " RANK=2 WORLD_SIZE=5 MASTER_ADDR=a", []string{"two launchers contradict each other"}},
		{slurmTask + " RANK=3 WORLD_SIZE=5 MASTER_ADDR=a LOCAL_RANK=1 LOCAL_WORLD_SIZE=4",
			[]string{"two launchers contradict each other"}},
		{slurmTask + " " + openMPI, []string{"Open MPI says rank 3 of 4", "Slurm says rank 3 of 5"}},
		{slurmOneAHost + " RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=2 GROUP_WORLD_SIZE=4 MASTER_ADDR=a",
			[]string{"two launchers contradict each other"}},
		{openMPI + " " + hydra + " MILLRACE_MASTER_ADDR=a", []string{"Open MPI says rank 3 of 4",
			"MPICH (PMI) says rank 4 of 5"}},
		{ours + " " + torchrun, []string{"millrace launch says rank 1 of 2", "torchrun says rank 5 of 8"}},
		{slurmTask + " SLURM_DISTRIBUTION=arbitrary", []string{"Slurm says rank 3 of 5 over several hosts, but not where"}},
		{openMPI, []string{"Open MPI says rank 3 of 4 over several hosts, but not where rank 0 is; set " +
			"MILLRACE_MASTER_ADDR"}},
		{"OMPI_COMM_WORLD_RANK=1", []string{"OMPI_COMM_WORLD_RANK=1, but OMPI_COMM_WORLD_SIZE is not set"}},
		{"PMI_SIZE=2", []string{"PMI_SIZE=2, but PMI_RANK is not set"}},
		{"JOB_COMPLETION_INDEX=1", []string{"Indexed Job says JOB_COMPLETION_INDEX=1, but not how many pods there are; " +
			"set MILLRACE_WORLD_SIZE"}},
		{"JOB_COMPLETION_INDEX=2 MILLRACE_WORLD_SIZE=2 MILLRACE_MASTER_ADDR=a",
			[]string{"JOB_COMPLETION_INDEX=2; it is a whole number from 0 to 1"}},
		{"JOB_COMPLETION_INDEX=1 MILLRACE_WORLD_SIZE=2", []string{"Indexed Job says rank 1 of 2 over several hosts",
			MasterAddrVar}},
		{"JOB_COMPLETION_INDEX=1 JOBSET_NAME=s MILLRACE_WORLD_SIZE=5 GLOBAL_REPLICAS=2",
			[]string{"MILLRACE_WORLD_SIZE=5 pods cannot be in GLOBAL_REPLICAS=2"}},
		{"JOB_COMPLETION_INDEX=1 JOBSET_NAME=s MILLRACE_WORLD_SIZE=4 GLOBAL_REPLICAS=2 JOB_GLOBAL_INDEX=2",
			[]string{"JOB_GLOBAL_INDEX=2;"}},
		{strings.Replace(trainPod, "PER_NODE=1", "PER_NODE=4", 1), []string{"PET_NPROC_PER_NODE=4, but nothing in the " +
			"pod has started so many",
			"--workers-per-process 4"}},
		{strings.Replace(trainPod, "NNODES=4", "NNODES=1:4", 1), []string{"PET_NNODES=1:4; it is a whole number"}},
		{"PET_NNODES=4", []string{"PET_NODE_RANK is not set"}},
		{"MILLRACE_RANK=1", []string{"MILLRACE_RANK=1, but MILLRACE_WORLD_SIZE is not set"}},
		{"MILLRACE_RANK=1 MILLRACE_WORLD_SIZE=2 MILLRACE_LOCAL_RANK=2", []string{"MILLRACE_LOCAL_RANK=2;"}},
		{"MILLRACE_LAUNCHER=pbs", []string{"MILLRACE_LAUNCHER=pbs; it is one of none, millrace, torchrun, openmpi"}},
		{"MILLRACE_LAUNCHER=slurm RANK=1 WORLD_SIZE=2", []string{"MILLRACE_LAUNCHER=slurm, and none of its variables"}},
		{"MILLRACE_TOKEN=secret MILLRACE_TOKEN_FILE=/f", []string{"MILLRACE_TOKEN and MILLRACE_TOKEN_FILE=/f are both set"}},
		{"MILLRACE_RESTART=x", []string{"MILLRACE_RESTART=x;"}},
		{slurmTask + " SLURM_HET_SIZE=2", []string{"SLURM_HET_SIZE=2: ranks over the parts of a heterogeneous job are " +
			"not read"}},
		{strings.Replace(slurmTask, "NODELIST=gnode[08-09]", "NODELIST=gnode[08-", 1),
			[]string{"SLURM_STEP_NODELIST=gnode[08-: a [ without ]"}},
		{strings.Replace(slurmTask, "NODELIST=gnode[08-09]", "NODELIST=gnode08", 1),
			[]string{"SLURM_STEP_NODELIST=gnode08 has 1 hosts, but the step is on 2"}},
		{strings.Replace(slurmTask, "PER_NODE=3,2", "PER_NODE=3", 1), []string{"host 1 of the step has 0 tasks by " +
			"SLURM_STEP_TASKS_PER_NODE=3"}},
		{strings.Replace(slurmTask, "PER_NODE=3,2", "PER_NODE=3(2)", 1), []string{"3(2) is no number of tasks"}},
	} {
		w, err := FromEnv(lines(c.env))
		if err == nil {
			t.Errorf("%s: got %+v, want a refusal", c.env, w)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s\nsays %v\nwant %q in it", c.env, err, want)
			}
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%v tells the token", err)
		}
	}
}

// All tasks of a step meet at the same host and port. Tasks of another step or job get a different port.
func TestRanksAgreeOnWhereToMeet(t *testing.T) {
	at := map[string][]int{}
	for _, c := range []struct{ job, step, rank, node string }{
		{"1", "0", "0", "0"}, {"1", "0", "3", "1"}, {"1", "1", "0", "0"}, {"2", "0", "4", "1"},
	} {
		env := strings.NewReplacer("SLURM_JOB_ID=4711", "SLURM_JOB_ID="+c.job, "SLURM_STEP_ID=0", "SLURM_STEP_ID="+c.step,
			"SLURM_PROCID=3", "SLURM_PROCID="+c.rank, "SLURM_NODEID=1", "SLURM_NODEID="+c.node).Replace(slurmTask)
		w, err := FromEnv(lines(env))
		if err != nil {
			t.Fatal(err)
		}
		at[c.job+"."+c.step] = append(at[c.job+"."+c.step], w.Port)
		if w.Address != "gnode08" {
			t.Errorf("rank %s meets at %s", c.rank, w.Address)
		}
	}
	if one := at["1.0"]; one[0] != one[1] {
		t.Errorf("two ranks of one step meet at ports %v", one)
	}
	if at["1.0"][0] == at["1.1"][0] || at["1.0"][0] == at["2.0"][0] {
		t.Errorf("steps meet at ports %v", at)
	}
}

// A folder of testdata with .env files has the environments of one run, recorded from a real launcher. They are read as
// ranks 0 to n-1 of one world.
func TestRealEnvironments(t *testing.T) {
	folders, err := filepath.Glob("testdata/*")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.env"))
		if err != nil || len(files) == 0 {
			continue // the fuzzers' folder
		}
		launcher := Launcher(strings.SplitN(filepath.Base(folder), "_", 2)[0])
		var ranks, want []int
		meet, local := map[string]bool{}, map[string][]int{}
		for i, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w, err := FromEnv(strings.Split(string(text), "\n"))
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if w.Launcher != launcher || w.Size != len(files) {
				t.Errorf("%s: %v by %s", file, w, w.Launcher)
			}
			ranks, want = append(ranks, w.Rank), append(want, i)
			meet[fmt.Sprint(w.Meet(), " of ", w.RunID)] = true
			local[w.Host] = append(local[w.Host], w.LocalRank)
			if w.LocalRank == Unknown {
				t.Errorf("%s: %+v", file, w)
			}
		}
		slices.Sort(ranks)
		if !slices.Equal(ranks, want) || len(meet) != 1 {
			t.Errorf("%s: ranks %v meet at %v", folder, ranks, meet)
		}
		for host, on := range local {
			slices.Sort(on)
			if len(slices.Compact(slices.Clone(on))) != len(on) || on[0] != 0 || on[len(on)-1] != len(on)-1 {
				t.Errorf("%s: host %q has local ranks %v", folder, host, on)
			}
		}
		t.Logf("%s: %v, by host %v", folder, meet, local)
	}
}

func TestHosts(t *testing.T) {
	for text, want := range map[string]string{
		"n7":                     "n7",
		"a,b,c":                  "a b c",
		"gnode[10,20-22],login1": "gnode10 gnode20 gnode21 gnode22 login1",
		"n[08-11]":               "n08 n09 n10 n11",
		"n[1-2]-ib":              "n1-ib n2-ib",
		"r[1-2]n[07-08]":         "r1n07 r1n08 r2n07 r2n08",
		"[1-3]":                  "1 2 3",
		"x[1,3]y[2],z":           "x1y2 x3y2 z",
		"sh04-10n05":             "sh04-10n05",
	} {
		l, err := parseHosts(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var names []string
		for i := range l.count {
			names = append(names, l.name(i))
		}
		if got := strings.Join(names, " "); got != want || l.name(l.count) != "" {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"": "without a name", ",a": "without a name", "a,": "without a name", "n[1": "[ without ]", "n1]": "] without [",
		"n[]": "no list", "n[a]": "no list", "n[3-1]": "no list", "n[1-2-3]": "no list", "n[1,,2]": "no list",
		"n[0-65536]": "more than 65536 hosts", "n[0-300]m[0-300]": "more than 65536 hosts", "n[0-999999999999]": "more than",
		"n[9999999999999]": "no list", "n[[1]]": "no list", "a[0-65535],b": "more than 65536 hosts", "n[-1]": "no list",
	} {
		if l, err := parseHosts(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", text, l, err, want)
		}
	}
}
