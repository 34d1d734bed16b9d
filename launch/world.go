package launch

import (
	"fmt"
	"net"
	"strconv"
	"time"
)

// Launcher names the program that started a process.
type Launcher string

// These are the launchers that are recognised, from the innermost out.
const (
	Millrace   Launcher = "millrace"
	Torchrun   Launcher = "torchrun"
	OpenMPI    Launcher = "openmpi"
	MPICH      Launcher = "mpich"
	Slurm      Launcher = "slurm"
	TrainJob   Launcher = "trainjob"
	JobSet     Launcher = "jobset"
	IndexedJob Launcher = "indexed-job"
	None       Launcher = "none" // no launcher: a world of one
)

// These are millrace's own variables. Other launchers may set them too.
const (
	RankVar       = "MILLRACE_RANK"
	SizeVar       = "MILLRACE_WORLD_SIZE"
	LocalRankVar  = "MILLRACE_LOCAL_RANK"
	LocalSizeVar  = "MILLRACE_LOCAL_SIZE"
	NodeVar       = "MILLRACE_NODE"
	NodesVar      = "MILLRACE_NODES"
	HostVar       = "MILLRACE_HOST"
	MasterAddrVar = "MILLRACE_MASTER_ADDR"
	MasterPortVar = "MILLRACE_MASTER_PORT"
	RunIDVar      = "MILLRACE_RUN_ID"
	RestartVar    = "MILLRACE_RESTART"
	TokenVar      = "MILLRACE_TOKEN"
	TokenFileVar  = "MILLRACE_TOKEN_FILE"
	LauncherVar   = "MILLRACE_LAUNCHER"
	WorkersVar    = "MILLRACE_WORKERS_PER_PROCESS"
	WaitVar       = "MILLRACE_WAIT"
	CommandVar    = "MILLRACE_COMMAND"  // JSON list: the command line of millrace launch, for running it again
	TLSVar        = "MILLRACE_TLS"      // on: connections are encrypted
	TLSCertVar    = "MILLRACE_TLS_CERT" // file with this process's certificate
	TLSKeyVar     = "MILLRACE_TLS_KEY"  // file with the certificate's key
	TLSRootsVar   = "MILLRACE_TLS_CA"   // file with the authorities that sign certificates
)

// DefaultPort is the port of rank 0 in pods, unless a variable gives another port. Elsewhere it is used if neither a
// variable nor the run's identity gives a port.
const DefaultPort = 29600

// MaxSize is the most processes of a world.
const MaxSize = 1 << 16

// Unknown marks a number that the launcher does not state.
const Unknown = -1

// World describes a process's place among those that were started with it.
type World struct {
	Launcher Launcher
	Within   []Launcher // launchers that started this one and agree with it

	Rank, Size           int
	LocalRank, LocalSize int    // among the processes of this host, or Unknown
	Node, Nodes          int    // number of this host, and number of all hosts; or Unknown
	Host                 string // what the launcher calls this host; may be empty

	Address string // host of rank 0; empty for a world of one
	Port    int

	WorkersPerProcess int // 0: not given, which means 1 if there are several processes

	Token   Token
	TLS     *TLS          // nil: connections are not encrypted
	Wait    time.Duration // longest wait for all processes; 0: not given
	RunID   string        // the same in all processes of a run, different in other runs; may be empty
	Restart int           // how often the run was started before
	// Note is a warning for the user, or empty.
	Note string
}

// TLS says how connections are encrypted. If all its fields are empty, each process makes its own certificate, and the
// token vouches for it.
type TLS struct {
	Certificate, Key string // file names; empty: none
	Roots            string // file with the authorities that have signed all certificates; empty: the system's authorities
}

// Alone returns the World of a process that was not started with others.
func Alone() *World {
	return &World{Launcher: None, Size: 1, LocalSize: 1, Nodes: 1}
}

// Workers returns the number of workers of all processes. For a single process it returns 0 if no number was given.
func (w *World) Workers() int {
	if w.WorkersPerProcess == 0 && w.Size > 1 {
		return w.Size
	}
	return w.Size * w.WorkersPerProcess
}

// Meet returns the address of rank 0, for net.Dial.
func (w *World) Meet() string { return net.JoinHostPort(w.Address, strconv.Itoa(w.Port)) }

// OnOneHost says whether all processes are known to be on this host.
func (w *World) OnOneHost() bool { return w.Nodes == 1 || w.LocalSize == w.Size }

// StartedBefore says whether the run may have been started before. It is true for every Indexed Job, which replaces its
// pods one by one and does not count restarts. The RunID then shows whether the run has started before.
func (w *World) StartedBefore() bool { return w.Restart > 0 || w.Launcher == IndexedJob }

func (w *World) String() string {
	text := fmt.Sprintf("rank %d of %d", w.Rank, w.Size)
	if w.LocalRank != Unknown && w.LocalSize != Unknown {
		text += fmt.Sprintf(", %d of %d on its host", w.LocalRank, w.LocalSize)
	}
	if w.Host != "" {
		text += " " + w.Host
	}
	if w.Launcher != None {
		text += ", started by " + w.Launcher.title()
	}
	return text
}

// title returns the name of a launcher for errors.
func (l Launcher) title() string {
	for _, k := range known {
		if k.launcher == l {
			return k.title
		}
	}
	return "nobody"
}

// Token says where the shared secret of a run's processes is. At most one of its fields is set. If neither is set, the
// secret is the user's own token (OwnToken).
type Token struct {
	Variable string // name of the environment variable that holds the secret
	File     string // name of the file that holds the secret
}

func (t Token) String() string {
	switch {
	case t.Variable != "":
		return "variable " + t.Variable
	case t.File != "":
		return "file " + t.File
	}
	return "the user's own file"
}
