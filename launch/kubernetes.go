package launch

import "fmt"

// completionIndex is the variable that Kubernetes sets in the pods of an Indexed Job.
const completionIndex = "JOB_COMPLETION_INDEX"

// These variables describe a pod of a JobSet. Manifests set them, often from the pod's annotations. millrace manifest
// sets the first two, to fixed values.
const (
	jobSetName     = "JOBSET_NAME"
	replicatedJob  = "REPLICATED_JOB_NAME"
	globalIndex    = "JOB_GLOBAL_INDEX"
	globalReplicas = "GLOBAL_REPLICAS"
)

// readIndexedJob reads a pod of an Indexed Job that is not part of a JobSet or TrainJob.
func readIndexedJob(env environment) (*claim, error) {
	if !env.has(completionIndex) || env.has(jobSetName) || env.has(petNodes) {
		return nil, nil
	}
	return env.readPods(1, 0, completionIndex)
}

// readJobSet reads a pod of a JobSet. All Jobs of the set have the same number of pods, and ranks continue from one Job
// to the next.
func readJobSet(env environment) (*claim, error) {
	if !env.has(completionIndex) || !env.has(jobSetName) || env.has(petNodes) {
		return nil, nil
	}
	n := numbers{env: env}
	jobs := n.may(globalReplicas, 1, MaxSize, 1)
	job := n.may(globalIndex, 0, max(0, jobs-1), 0)
	if n.err != nil {
		return nil, n.err
	}
	c, err := env.readPods(jobs, job, completionIndex, globalIndex, globalReplicas)
	if err != nil || c == nil {
		return nil, err
	}
	c.RunID = env[jobSetName]
	if env.has(replicatedJob) && jobs == 1 {
		c.Address = fmt.Sprintf("%s-%s-0-0.%s", env[jobSetName], env[replicatedJob], env[jobSetName])
	}
	return c, nil
}

// readPods reads a pod's index in one of several Jobs. Each pod is a host of its own.
func (env environment) readPods(jobs, job int, names ...string) (*claim, error) {
	n := numbers{env: env}
	c := &claim{names: names}
	c.Size = n.may(SizeVar, 1, MaxSize, 0)
	each := MaxSize
	if c.Size > 0 {
		if each = c.Size / jobs; each*jobs != c.Size {
			return nil, fmt.Errorf("%s pods cannot be in %s Jobs of as many each", env.shown(SizeVar), env.shown(globalReplicas))
		}
		c.names = append([]string{SizeVar}, c.names...)
	}
	index := n.must(completionIndex, 0, each-1)
	if n.err != nil {
		return nil, n.err
	}
	c.Rank = job*each + index
	c.LocalRank, c.LocalSize, c.Node, c.Nodes = 0, 1, c.Rank, c.Size
	c.Host = env["HOSTNAME"]
	c.Port = DefaultPort // each pod has all ports to itself
	return c, nil
}

// These variables are set in a TrainJob's pods for torchrun, which reads any of its flags from such variables.
const (
	petNodes   = "PET_NNODES"
	petNode    = "PET_NODE_RANK"
	petPerNode = "PET_NPROC_PER_NODE"
	petAddr    = "PET_MASTER_ADDR"
	petPort    = "PET_MASTER_PORT"
)

// readTrainJob reads a pod of a TrainJob or of a PyTorchJob. The pod is one process, the only one on its node. Several
// processes on a node are refused unless a launcher in the pod has started them.
func readTrainJob(env environment) (*claim, error) {
	if !env.has(petNodes) && !env.has(petNode) {
		return nil, nil
	}
	if err := env.together(petNodes, petNode); err != nil {
		return nil, err
	}
	n := numbers{env: env}
	c := &claim{names: []string{petNode, petNodes, petPerNode}}
	c.Size = n.must(petNodes, 1, MaxSize)
	c.Rank = n.must(petNode, 0, max(0, c.Size-1))
	c.Port = n.may(petPort, 1, maxPort, DefaultPort)
	if n.err != nil {
		return nil, n.err
	}
	if err := env.onePerNode(); err != nil && !env.has("RANK") && !env.has(RankVar) {
		return nil, err
	}
	c.LocalRank, c.LocalSize, c.Node, c.Nodes = 0, 1, c.Rank, c.Size
	c.Host, c.Address = env["HOSTNAME"], env[petAddr]
	return c, nil
}

// onePerNode refuses several processes per pod, since nothing has started them.
func (env environment) onePerNode() error {
	switch env[petPerNode] {
	case "", "auto", "cpu", "gpu": // a launcher in the pod would choose the number, but there is none
		return nil
	}
	n, err := env.number(petPerNode, 1, MaxSize)
	if err != nil || n == 1 {
		return err
	}
	return fmt.Errorf("%s, but nothing in the pod has started so many; set numProcPerNode to 1 and give "+
		"--workers-per-process %d, "+
		"or start them with torchrun --no-python or millrace launch -n %d", env.shown(petPerNode), n, n)
}
