package launch

import (
	"fmt"
	"strconv"
	"strings"
)

// firstSpecialStep is the first of the numbers that Slurm gives to steps which srun did not make: batch scripts,
// salloc's shells, and Slurm's internal steps.
const firstSpecialStep = 0xfffffff0

// slurmStep returns the srun step of this process; false if it is in none.
func (env environment) slurmStep() (string, bool) {
	step := env.first("SLURM_STEP_ID", "SLURM_STEPID")
	n, err := strconv.ParseUint(step, 10, 32)
	return step, step != "" && (err != nil || n < firstSpecialStep)
}

// unstarted returns a warning if a Slurm job has several tasks but srun did not start this process; otherwise "".
func (env environment) unstarted() string {
	tasks := env.either("SLURM_NTASKS", "SLURM_NPROCS")
	_, started := env.slurmStep()
	if started || !env.has("SLURM_JOB_ID") || !env.has(tasks) || env[tasks] == "1" {
		return ""
	}
	return fmt.Sprintf("the Slurm job has %s, but srun did not start this process: it is alone", env.shown(tasks))
}

// either returns the first of the names that is set. If none is set, it returns the first name.
func (env environment) either(names ...string) string {
	for _, name := range names {
		if env.has(name) {
			return name
		}
	}
	return names[0]
}

// readSlurm reads what srun sets for each task of a step.
func readSlurm(env environment) (*claim, error) {
	step, started := env.slurmStep()
	if !env.has("SLURM_PROCID") || !started {
		return nil, nil
	}
	if n := env["SLURM_HET_SIZE"]; n != "" && n != "1" {
		return nil, fmt.Errorf("%s: ranks over the parts of a heterogeneous job are not read; set %s, %s, %s and %s=%s "+
			"in each task", env.shown("SLURM_HET_SIZE"), RankVar, SizeVar, MasterAddrVar, LauncherVar, Millrace)
	}
	tasks := env.either("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
	if err := env.together("SLURM_PROCID", tasks); err != nil {
		return nil, err
	}
	n := numbers{env: env}
	c := &claim{names: []string{"SLURM_PROCID", tasks, "SLURM_LOCALID"}}
	c.Size = n.must(tasks, 1, MaxSize)
	c.Rank = n.must("SLURM_PROCID", 0, max(0, c.Size-1))
	c.LocalRank = n.may("SLURM_LOCALID", 0, max(0, c.Size-1), Unknown)
	c.Nodes = n.may(env.either("SLURM_STEP_NUM_NODES", "SLURM_NNODES"), 1, MaxSize, Unknown)
	c.Node = n.may("SLURM_NODEID", 0, max(0, c.Nodes-1), Unknown)
	c.Restart = n.may("SLURM_RESTART_COUNT", 0, MaxSize, 0)
	c.LocalSize, c.Host = Unknown, env["SLURMD_NODENAME"]
	if n.err != nil {
		return nil, n.err
	}
	c.RunID = env.first("SLURM_JOB_ID", "SLURM_JOBID") + "." + step
	return c, c.readHosts(env)
}

// arranged says whether a user's file assigns ranks to hosts. Even then Slurm's lists of hosts are sorted, so rank 0
// may be on any host.
func (env environment) arranged() bool { return env["SLURM_DISTRIBUTION"] == "arbitrary" }

// readHosts reads the list of hosts and the number of tasks on each.
func (c *claim) readHosts(env environment) error {
	if name := env.either("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"); env.has(name) {
		hosts, err := parseHosts(env[name])
		if err != nil {
			return fmt.Errorf("%s: %w", env.shown(name), err)
		}
		if c.Nodes != Unknown && c.Nodes > hosts.count {
			return fmt.Errorf("%s has %d hosts, but the step is on %d", env.shown(name), hosts.count, c.Nodes)
		}
		if c.Nodes != 1 && !env.arranged() {
			c.Address = hosts.name(0)
		}
	}
	name := env.either("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
	if c.LocalRank == Unknown || c.Node == Unknown || !env.has(name) {
		return nil
	}
	counts, err := parseCounts(env[name])
	if err != nil {
		return fmt.Errorf("%s: %w", env.shown(name), err)
	}
	if c.LocalSize = counts.at(c.Node); c.LocalSize <= c.LocalRank {
		return fmt.Errorf("host %d of the step has %d tasks by %s, but %s", c.Node, max(0, c.LocalSize), env.shown(name),
			env.shown("SLURM_LOCALID"))
	}
	return nil
}

// counts is a list of numbers in Slurm's short form: 2(x3),1 is 2, 2, 2, 1.
type counts []struct{ value, times int }

// parseCounts reads a short list of numbers.
func parseCounts(text string) (counts, error) {
	var list counts
	for part := range strings.SplitSeq(text, ",") {
		value, times, repeated := strings.Cut(part, "(x")
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > MaxSize {
			return nil, fmt.Errorf("%s is no number of tasks", clipped(part))
		}
		x := 1
		if repeated {
			inside, closed := strings.CutSuffix(times, ")")
			if x, err = strconv.Atoi(inside); err != nil || !closed || x < 1 || x > MaxSize {
				return nil, fmt.Errorf("%s is no number of tasks", clipped(part))
			}
		}
		list = append(list, struct{ value, times int }{n, x})
	}
	return list, nil
}

// at returns the number at a position, or Unknown after the end.
func (l counts) at(i int) int {
	for _, c := range l {
		if i < c.times {
			return c.value
		}
		i -= c.times
	}
	return Unknown
}
