package manifest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace-ml/millrace/internal/registry"
)

// Spec describes a run to be started.
type Spec struct {
	Name    string   // name of the job
	Command []string // command line of every process; the program comes first
	Hosts   []Host   // in the order of ranks

	Cores       int           // of each process; 0: not given
	MemoryBytes int64         // of each process; 0: not given
	Limit       time.Duration // time limit for one start of the run; 0: none
	Grace       time.Duration // time between SIGTERM and SIGKILL; 0: a minute
	Restarts    int

	TLS       bool   // encrypt connections; by default with certificates that the processes make
	TokenFile string // Slurm, mpirun: file with the token; empty: the user's own token
	MPI       string // mpirun: OpenMPI or MPICH; empty: OpenMPI

	// The following fields are only for Kubernetes.
	Image     string
	Secret    string            // Secret with the token under the key "token"; empty: NAME-token
	Claim     string            // PersistentVolumeClaim with data and checkpoints; empty: none
	MountAt   string            // mount path of Claim
	Files     map[string]string // by name: content of a file in FilesAt of every pod
	Selector  map[string]string // labels that a node must have
	Namespace string
}

// Host describes the processes of one host.
type Host struct {
	Name      string // empty: the launcher chooses the host
	Processes int
	Device    string // types of its devices; empty: not known
}

// FilesAt is the folder of Spec.Files in a pod.
const FilesAt = "/etc/millrace"

// These are the implementations of MPI.
const (
	OpenMPI = "openmpi"
	MPICH   = "mpich"
)

// These are the limits of a Spec.
const (
	maxProcesses = 1 << 16
	maxRestarts  = 1000
	maxText      = 1 << 16 // bytes of the command
	maxFiles     = 900_000 // bytes of all files; a ConfigMap holds less than 1 MiB
	maxFileName  = 253
	maxName      = 46 // bytes of Name, so that the names of pods fit the 63 bytes of a host's name
	defaultGrace = time.Minute
)

// kinds lists the kinds of files.
var kinds = []struct {
	name  string
	write func(*Spec) (string, error)
}{
	{"slurm", slurm}, {"mpirun", mpirun}, {"k8s", indexedJob}, {"jobset", jobSet}, {"trainjob", trainJob},
}

// Kinds lists the names of the kinds of files.
func Kinds() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// Write returns the text of a file of the given kind.
func Write(kind string, s Spec) (string, error) {
	for _, k := range kinds {
		if k.name != kind {
			continue
		}
		if err := s.check(); err != nil {
			return "", fmt.Errorf("manifest: %w", err)
		}
		text, err := k.write(&s)
		if err != nil {
			return "", fmt.Errorf("manifest: %s: %w", kind, err)
		}
		return text, nil
	}
	return "", fmt.Errorf("manifest: %w", registry.None("kind", kind, Kinds()))
}

var (
	labels    = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)
	hostNames = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)
	fileNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

// check fills in defaults, and refuses what no kind can express.
func (s *Spec) check() error {
	if s.Grace == 0 {
		s.Grace = defaultGrace
	}
	switch {
	case !labels.MatchString(s.Name) || len(s.Name) > maxName:
		return fmt.Errorf("name is %q; give 1 to %d lower-case letters, digits and -, a letter first", s.Name, maxName)
	case len(s.Command) == 0:
		return errors.New("there is no command")
	case len(s.Hosts) == 0:
		return errors.New("there are no hosts")
	case s.Cores < 0 || s.MemoryBytes < 0 || s.Limit < 0:
		return fmt.Errorf("%d cores, %d bytes and %v; none is below 0", s.Cores, s.MemoryBytes, s.Limit)
	case s.Grace < time.Second || s.Grace > 24*time.Hour:
		return fmt.Errorf("grace is %v; give a second to a day", s.Grace)
	case s.Restarts < 0 || s.Restarts > maxRestarts:
		return fmt.Errorf("restarts is %d; give 0 to %d", s.Restarts, maxRestarts)
	case s.Limit > 0 && s.Limit <= s.Grace:
		return fmt.Errorf("the time limit is %v; it must be over the grace of %v", s.Limit, s.Grace)
	}
	total := 0
	for _, h := range s.Hosts {
		if total += h.Processes; h.Processes < 1 || total > maxProcesses {
			return fmt.Errorf("host %q has %d processes; give 1 at least, and %d on all at most", h.Name, h.Processes,
				maxProcesses)
		}
		if h.Name != "" && !hostNames.MatchString(h.Name) {
			return fmt.Errorf("host %q is no name of a host", h.Name)
		}
		if (h.Name == "") != (s.Hosts[0].Name == "") {
			return errors.New("some hosts have names and some have not; name all or none")
		}
	}
	return s.checkTexts()
}

// mixed returns an error that names two types of hosts, or nil if all hosts have the same type.
func (s *Spec) mixed() error {
	for _, h := range s.Hosts {
		if h.Device != s.Hosts[0].Device {
			return fmt.Errorf("workers are on hosts with devices of type %s and of type %s", s.Hosts[0].Device, h.Device)
		}
	}
	return nil
}

// checkTexts refuses texts that no file can hold.
func (s *Spec) checkTexts() error {
	n := 0
	for _, arg := range s.Command {
		n += len(arg) + 1
		if strings.ContainsFunc(arg, unprintable) || !utf8.ValidString(arg) {
			return fmt.Errorf("the command has %q; give text of one line", arg)
		}
	}
	if n > maxText {
		return fmt.Errorf("the command has %d bytes; at most %d", n, maxText)
	}
	if i := slices.IndexFunc(s.Command, isSecret); i >= 0 {
		return fmt.Errorf("the command has %s: anyone on a host can read the arguments of processes; leave the token "+
			"out, it "+
			"comes by a file or the environment", strings.SplitN(s.Command[i], "=", 2)[0])
	}
	for _, text := range []string{s.TokenFile, s.Image, s.Claim, s.MountAt, s.Secret, s.Namespace} {
		if strings.ContainsFunc(text, unprintable) || !utf8.ValidString(text) {
			return fmt.Errorf("%q is no text of one line", text)
		}
	}
	if (s.Claim == "") != (s.MountAt == "") {
		return fmt.Errorf("the volume claim is %q and is mounted at %q; give both or neither", s.Claim, s.MountAt)
	}
	bytes := 0
	for name, text := range s.Files {
		if !fileNames.MatchString(name) || len(name) > maxFileName || !utf8.ValidString(text) {
			return fmt.Errorf("file %q has no plain name, or is no text", name)
		}
		bytes += len(name) + len(text)
	}
	if bytes > maxFiles {
		return fmt.Errorf("the files have %d bytes; at most %d", bytes, maxFiles)
	}
	return nil
}

func unprintable(c rune) bool { return c < ' ' || c == 0x7f }

// isSecret says whether an argument is --token, which gives the token itself and not the name of its file.
func isSecret(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return name == "--token" || name == "-token"
}

// processes returns the number of processes.
func (s *Spec) processes() int {
	n := 0
	for _, h := range s.Hosts {
		n += h.Processes
	}
	return n
}

// most returns the largest number of processes on a host.
func (s *Spec) most() int {
	n := 0
	for _, h := range s.Hosts {
		n = max(n, h.Processes)
	}
	return n
}

// named says whether the hosts have names.
func (s *Spec) named() bool { return s.Hosts[0].Name != "" }

// even says whether all hosts have the same number of processes.
func (s *Spec) even() bool { return s.processes() == s.most()*len(s.Hosts) }
