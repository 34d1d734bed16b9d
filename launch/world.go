package launch

import (
	"fmt"
	"net"
	"strconv"
	"time"
)

// Launcher is what started a process.
type Launcher string

// The launchers that are read, from the one that is nearest to the process.
const (
	Millrace   Launcher = "millrace"
	Torchrun   Launcher = "torchrun"
	OpenMPI    Launcher = "openmpi"
	MPICH      Launcher = "mpich"
	Slurm      Launcher = "slurm"
	TrainJob   Launcher = "trainjob"
	JobSet     Launcher = "jobset"
	IndexedJob Launcher = "indexed-job"
	None       Launcher = "none" // nobody: a world of one
)

// Variables of millrace's own. A launcher that is no program of ours may set them too.
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
	CommandVar    = "MILLRACE_COMMAND"  // command line of millrace launch, a list in JSON, to be run again
	TLSVar        = "MILLRACE_TLS"      // on: connections are encrypted
	TLSCertVar    = "MILLRACE_TLS_CERT" // file with this process's certificate
	TLSKeyVar     = "MILLRACE_TLS_KEY"  // and with its key
	TLSRootsVar   = "MILLRACE_TLS_CA"   // file with those who sign certificates
)

// DefaultPort is where rank 0 is met if nothing says otherwise.
const DefaultPort = 29600

// MaxSize is the most processes of a world.
const MaxSize = 1 << 16

// Unknown is a number that the launcher does not say.
const Unknown = -1

// World is where a process stands among those that were started with it.
type World struct {
	Launcher Launcher
	Within   []Launcher // launchers that started this one, and agree

	Rank, Size           int
	LocalRank, LocalSize int    // on this host, or Unknown
	Node, Nodes          int    // this host among the world's, or Unknown
	Host                 string // what the launcher calls this host; may be empty

	Address string // of the host that rank 0 is on; empty for a world of one
	Port    int

	WorkersPerProcess int // 0: not told, which is 1 where there are several processes

	Token   Token
	TLS     *TLS          // nil: connections are not encrypted
	Wait    time.Duration // for all processes to come; 0: not told
	RunID   string        // the same in all processes, another for another run; may be empty
	Restart int           // how often the run was started before
	// Note is what a user may not expect; empty where there is nothing to say.
	Note string
}

// TLS says how connections are encrypted. The zero TLS is by a certificate of each process's own making, which the
// token vouches for.
type TLS struct {
	Certificate, Key string // names of files; empty: none
	Roots            string // of a file with authorities, who have signed every process's; empty: the system's
}

// Alone is the world of a process that nobody started with others.
func Alone() *World {
	return &World{Launcher: None, Size: 1, LocalSize: 1, Nodes: 1}
}

// Workers is how many workers all processes have; 0 where a process that is alone has as many as it likes.
func (w *World) Workers() int {
	if w.WorkersPerProcess == 0 && w.Size > 1 {
		return w.Size
	}
	return w.Size * w.WorkersPerProcess
}

// Meet is the address that rank 0 is met at, for net.Dial.
func (w *World) Meet() string { return net.JoinHostPort(w.Address, strconv.Itoa(w.Port)) }

// OnOneHost says whether all processes are known to be on this host.
func (w *World) OnOneHost() bool { return w.Nodes == 1 || w.LocalSize == w.Size }

// StartedBefore says whether the run may have been started before. Who replaces the pods of an Indexed Job one by
// one does not count starts; a run that has been is known by its RunID then.
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

// title is how errors call a launcher.
func (l Launcher) title() string {
	for _, k := range known {
		if k.launcher == l {
			return k.title
		}
	}
	return "nobody"
}

// Token says where the secret is that the processes of a run share. At most one of its fields is set; where
// none is, it is the user's own token (OwnToken).
type Token struct {
	Variable string // the name of the environment variable that holds it
	File     string // the name of the file that holds it
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
