package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/internal/strictyaml"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/launch/manifest"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/imported"
	"github.com/millrace-ml/millrace/plan"
)

const (
	manifestHelp = `manifest writes a file with which another launcher starts millrace train: a script for sbatch (slurm), a script that
calls mpirun, or objects for kubectl: an Indexed Job (k8s), a JobSet, or a Kubeflow TrainJob. It takes the flags and
job files of train, and hands them to the processes as they are.

Processes are placed where the plan has workers. If --cluster is given, or --plan for a cluster, each host gets as many
processes as it has devices. Otherwise all processes are on one host. In pods, one process has all workers of its host.
All pods have the same node selector, so a run of unequal hosts needs slurm or mpirun.`

	manifestMore = `If a process was lost (exit code 3) or killed (137), the run starts again, up to --restarts times. Pods also start
again if a process was told to stop (129, 130, 143), for example because its node is drained. With slurm and mpirun such
a stop ends the run, whoever asked for it. Everywhere the run ends at its --limit, and after any other exit code.

No file contains the run's token. slurm and mpirun read it from your own token file or --run-token-file, which all hosts
must see. Kubernetes reads it from a Secret. All MILLRACE_ variables of the shell that starts a script are passed to the
processes.`
)

// manifestFlags are the flags of manifest in addition to a job's flags.
type manifestFlags struct {
	spec            manifest.Spec
	workers         int // workers of each process
	hosts           []string
	memory          string
	executable, out string
	words           []string // the job's flags as they were typed
}

// inPods lists the kinds of manifests whose processes are pods. Pods share no folders with the user's machine.
var inPods = []string{"k8s", "jobset", "trainjob"}

func manifestCommand() *cobra.Command {
	var flags prepare.JobFlags
	var own manifestFlags
	c := &cobra.Command{
		Use: "manifest KIND [JOB.yaml]", Short: "Write a job file for Slurm, mpirun or Kubernetes", Long: manifestHelp,
		Example: `  millrace manifest slurm job.yaml --cluster cluster.yaml --restarts 3 -o job.sbatch
  millrace manifest mpirun --model gpt --data FILE.txt --workers 4 --out runs/gpt -o run.sh
  millrace manifest jobset job.yaml --cluster cluster.yaml --plan plan.json --image IMAGE -o jobset.yaml`,
		ValidArgsFunction: words.Each(words.One(manifest.Kinds()...), words.JobFiles),
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return cli.BadInput(fmt.Errorf("manifest: KIND is missing; give one of %s", strings.Join(manifest.Kinds(), ", ")))
			case len(args) > 2:
				return cli.BadInput(fmt.Errorf("manifest: %q is too many: it takes KIND and a job file", args[2]))
			case !slices.Contains(manifest.Kinds(), args[0]):
				return cli.BadInput(fmt.Errorf("manifest: %w", registry.None("kind", args[0], manifest.Kinds())))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 2 {
				flags.File = args[1]
			}
			j, err := flags.Job()
			if err != nil {
				return err
			}
			own.words = flags.Words
			if flags.File != "" {
				own.words = append([]string{"--job=" + flags.File}, own.words...)
			}
			text, err := own.text(args[0], j)
			if err != nil {
				return cli.BadInput(err)
			}
			return writeOut(c, own.out, []byte(text))
		},
	}
	cli.More(c, manifestMore)
	own.add(c) // before the flags of train, whose --out then has no -o
	flags.Add(c, job.ModelOptions, job.PlanOptions, job.ElasticOptions, job.ClusterOptions, job.TrainOptions)
	return c
}

func (m *manifestFlags) add(c *cobra.Command) {
	f, s := c.Flags(), &m.spec
	f.StringVarP(&m.out, "manifest", "o", "", "write to this file instead of the screen")
	cli.Writes(c, "manifest")
	cli.WritesAs(c, "manifest", ".yaml", ".yml")
	cli.Formerly(c, map[string]string{"output": "manifest"})
	f.StringVar(&s.Name, "name", "", "name of the job (default: from --out or --model)")
	f.IntVar(&m.workers, "workers-per-process", 0,
		"workers of each process (default: the cluster's, or 1; in pods all of a host)")
	f.StringSliceVar(&m.hosts, "hosts", nil, "names of the hosts, in the cluster's order (default: the launcher chooses)")
	f.IntVar(&s.Cores, "cores-per-process", 0, "cores of each process (default: one for each thread of each worker)")
	f.StringVar(&m.memory, "memory-per-process", "", "memory of each process, like 8GiB")
	f.DurationVar(&s.Limit, "limit", 0, "longest time of one start, like 12h; the run then ends")
	f.DurationVar(&s.Grace, "grace", time.Minute, "time from SIGTERM to SIGKILL, for ending and saving the step")
	f.IntVar(&s.Restarts, "restarts", 0, "how often the run may start again")
	f.StringVar(&m.executable, "executable", "",
		"path of millrace on the hosts (default: this program's; in pods millrace)")
	f.BoolVar(&s.TLS, "tls", false, "encrypt connections, with certificates that the run's token proves")
	f.StringVar(&s.TokenFile, "run-token-file", "", "slurm, mpirun: file with the run's token (default: your own)")
	f.StringVar(&s.MPI, "mpi", "", "mpirun: openmpi (the default) or mpich")
	f.StringVar(&s.Image, "image", "", "pods: image with millrace and its native library")
	f.StringVar(&s.Secret, "secret", "", "pods: Secret with the run's token (default: NAME-token)")
	f.StringVar(&s.Claim, "claim", "", "pods: PersistentVolumeClaim with data and checkpoints")
	f.StringVar(&s.MountAt, "mount-at", "", "pods: folder where the claim is mounted")
	f.StringToStringVar(&s.Selector, "node-selector", nil, "pods: label that a node must have; may be repeated")
	f.StringVar(&s.Namespace, "namespace", "", "pods: namespace of all objects")
}

// text returns the manifest for a job.
func (m *manifestFlags) text(kind string, j *job.Job) (string, error) {
	s := &m.spec
	pods := slices.Contains(inPods, kind)
	if err := m.place(j, pods); err != nil {
		return "", err
	}
	s.Name = cmp.Or(s.Name, nameOf(j))
	if s.Cores == 0 && kind != "mpirun" {
		s.Cores = m.workers * j.Machine.ThreadsPerWorker
	}
	if m.memory != "" {
		var err error
		if s.MemoryBytes, err = cluster.ParseBytes(m.memory); err != nil {
			return "", fmt.Errorf("--memory-per-process: %w", err)
		}
	}
	program := m.executable
	switch {
	case pods:
		if err := m.carry(j); err != nil {
			return "", err
		}
		program = cmp.Or(program, "millrace")
	case program == "":
		var err error
		if program, err = os.Executable(); err != nil {
			return "", err
		}
	}
	s.Command = append([]string{program, "train"}, m.words...)
	if m.workers > 1 {
		s.Command = append(s.Command, fmt.Sprint("--workers-per-process=", m.workers))
	}
	return manifest.Write(kind, *s)
}

// place decides how many processes run on each host.
func (m *manifestFlags) place(j *job.Job, pods bool) error {
	var c *cluster.Cluster
	var err error
	if j.Machine.Cluster != "" {
		if c, err = cluster.Read(j.Machine.Cluster); err != nil {
			return err
		}
	}
	workers := j.Machine.Workers
	if j.Plan.File != "" {
		p, err := plan.Read(j.Plan.File)
		if err != nil {
			return err
		}
		planned, err := p.For()
		if err != nil {
			return err
		}
		if c == nil {
			c = planned
		} else if planned != nil {
			n := min(len(c.Devices), len(planned.Devices))
			if of, there := cluster.FirstHosts(planned.HostSizes(), n),
				cluster.FirstHosts(c.HostSizes(), n); !slices.Equal(of, there) {
				return fmt.Errorf("the plan in %s is for %s, whose first hosts have %v workers; those of --cluster %s have %v: "+
					"leave --cluster out, or plan for it", j.Plan.File, planned.Name, of, j.Machine.Cluster, there)
			}
		}
		if workers, err = manifest.Workers(p, c); err != nil {
			return err
		}
	} else if c != nil {
		workers = len(c.Devices)
	}
	if j.Given("workers") && j.Machine.Workers != workers {
		return fmt.Errorf("%s is %d, and the run has %d, as --cluster or --plan says; leave it out", j.Called("workers"),
			j.Machine.Workers, workers)
	}
	if m.workers == 0 {
		switch m.workers = 1; {
		case pods && c == nil:
			m.workers = workers
		case pods:
			m.workers = min(workers, c.HostSizes()[0])
		case c != nil && c.Levels[0].OneMemory:
			m.workers = min(workers, c.Levels[0].Size)
		}
	}
	if m.spec.Hosts, err = manifest.Place(workers, c, m.workers); err != nil {
		return err
	}
	if len(m.hosts) == 0 {
		return nil
	}
	if len(m.hosts) != len(m.spec.Hosts) {
		return fmt.Errorf("--hosts names %s; the workers are on %d", terminal.Count(len(m.hosts), "host"), len(m.spec.Hosts))
	}
	for i, name := range m.hosts {
		m.spec.Hosts[i].Name = name
	}
	return nil
}

// carry adds the files that a job names to the pods, and changes the command to use them there.
func (m *manifestFlags) carry(j *job.Job) error {
	m.spec.Files = map[string]string{}
	put := func(flag, path string) error {
		text, err := document.Read(path, strictyaml.MaxBytes)
		if err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
		name := flag + filepath.Ext(path)
		m.spec.Files[name] = string(text)
		m.words = slices.DeleteFunc(m.words, func(word string) bool { return strings.HasPrefix(word, "--"+flag+"=") })
		m.words = append(m.words, fmt.Sprintf("--%s=%s/%s", flag, manifest.FilesAt, name))
		return nil
	}
	named := []struct{ flag, path string }{{"profile", j.Plan.Profile}, {"plan", j.Plan.File}, {"program", j.Plan.Program}}
	for _, word := range m.words {
		if path, found := strings.CutPrefix(word, "--job="); found {
			named = append(named, struct{ flag, path string }{"job", path})
		}
	}
	if model.IsFile(j.Model.Name) {
		named = append(named, struct{ flag, path string }{"model", j.Model.Name})
	}
	for _, described := range []struct{ flag, path string }{{"cluster", j.Machine.Cluster}, {"wire", j.Machine.Wire}} {
		if isPath(described.path) {
			named = append(named, described)
		}
	}
	for _, n := range named {
		if n.path == "" {
			continue
		}
		if err := put(n.flag, n.path); err != nil {
			return err
		}
	}
	if !filepath.IsAbs(j.Output.Folder) {
		return fmt.Errorf("--out is %q; in pods it is a whole path, best below --mount-at, since they share no other folder",
			j.Output.Folder)
	}
	if imported.IsFile(j.Model.Name) && !filepath.IsAbs(j.Model.Name) {
		return fmt.Errorf("--model is %s; in pods a network is a whole path, of the image or below --mount-at", j.Model.Name)
	}
	if j.Model.Init != "" && !filepath.IsAbs(j.Model.Init) {
		return fmt.Errorf("--init is %s; in pods it is a whole path, of the image or below --mount-at", j.Model.Init)
	}
	if isPath(j.Data.Source) && !filepath.IsAbs(j.Data.Source) {
		return fmt.Errorf("--data is %s; in pods it is a whole path, of the image or below --mount-at", j.Data.Source)
	}
	if j.Save.Resume != "" && !filepath.IsAbs(j.Save.Resume) {
		return errors.New("--resume: in pods it is a whole path, below --mount-at")
	}
	return nil
}

// isPath reports whether a word names a file or folder rather than something built in.
func isPath(word string) bool { return strings.ContainsAny(word, "/.") }

// nameOf returns a name for a job, from its output folder or else from its model.
func nameOf(j *job.Job) string {
	name := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			return c
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		}
		return '-'
	}, prepare.Trimmed(cmp.Or(j.Output.Folder, j.Model.Name)))
	const most = 40
	return strings.Trim("millrace-"+name[:min(len(name), most-len("millrace-"))], "-")
}
