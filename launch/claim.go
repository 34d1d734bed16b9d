package launch

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// claim holds the World that one launcher's variables describe.
type claim struct {
	World
	names []string // the variables that hold rank and size; errors name them
}

// shown describes a claim for errors, with the variables that it comes from.
func (c *claim) shown(env environment) string {
	return fmt.Sprintf("%s says rank %d of %d (%s)", c.Launcher.title(), c.Rank, c.Size, c.said(env))
}

// said lists those variables of a claim that are set.
func (c *claim) said(env environment) string {
	var said []string
	for _, name := range c.names {
		if env.has(name) {
			said = append(said, env.shown(name))
		}
	}
	return strings.Join(said, " ")
}

// known lists the launchers from the innermost out, each with its reader. A reader returns nil if its launcher did
// not start the process. It returns a claim with Size 0 if the launcher gives the rank but not the number of
// processes.
var known = []struct {
	launcher Launcher
	title    string
	read     func(environment) (*claim, error)
}{
	{Millrace, "millrace launch", readOwn},
	{Torchrun, "torchrun", readTorch},
	{OpenMPI, "Open MPI", readOpenMPI},
	{MPICH, "MPICH (PMI)", readPMI},
	{Slurm, "Slurm", readSlurm},
	{TrainJob, "TrainJob", readTrainJob},
	{JobSet, "JobSet", readJobSet},
	{IndexedJob, "Indexed Job", readIndexedJob},
}

// FromEnv returns the World of a process from its environment, given as lines NAME=value.
func FromEnv(lines []string) (*World, error) {
	env := newEnvironment(lines)
	w, err := env.world()
	if err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	if err := env.complete(w); err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	return w, nil
}

// world returns the World of the innermost launcher that states the number of processes. Values that this launcher does
// not state are those of the launchers around it. An outer launcher that contradicts the innermost one is an error.
// Without any launcher, world returns Alone.
func (env environment) world() (*World, error) {
	claims, err := env.claims()
	if err != nil {
		return nil, err
	}
	var sized []*claim
	for _, c := range claims {
		if c.Size > 0 {
			sized = append(sized, c)
		}
	}
	if len(sized) == 0 {
		if len(claims) > 0 {
			return nil, env.sizeless(claims[0])
		}
		w := Alone()
		w.Note = env.unstarted()
		return w, nil
	}
	inner := sized[0]
	for _, outer := range sized[1:] {
		switch {
		case inner.same(&outer.World):
			inner.fill(&outer.World)
		case inner.within(outer):
			inner.fillPlace(&outer.World)
		default:
			return nil, fmt.Errorf("two launchers contradict each other: %s, %s; unset the variables of one, or name "+
				"the one that counts: %s=%s, %s or none", inner.shown(env), outer.shown(env), LauncherVar, inner.Launcher,
				outer.Launcher)
		}
		inner.Within = append(inner.Within, outer.Launcher)
	}
	return &inner.World, nil
}

// claims reads the variables of all launchers, or only of the one that LauncherVar names.
func (env environment) claims() ([]*claim, error) {
	only := Launcher(env[LauncherVar])
	names := []string{string(None)}
	var claims []*claim
	var wrong []error
	for _, k := range known {
		names = append(names, string(k.launcher))
		if only != "" && only != k.launcher {
			continue
		}
		c, err := k.read(env)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("%s: %w", k.title, err))
		case c != nil:
			c.Launcher = k.launcher
			claims = append(claims, c)
		case only != "":
			wrong = append(wrong, fmt.Errorf("%s, and none of its variables that say rank and size is set",
				env.shown(LauncherVar)))
		}
	}
	if only != "" && !slices.Contains(names, string(only)) {
		return nil, fmt.Errorf("%s; it is one of %s", env.shown(LauncherVar), strings.Join(names, ", "))
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	return claims, nil
}

// same says whether another launcher's World agrees with the claim in rank, size, local rank and local size. A value is
// compared only if both of them state it.
func (c *claim) same(o *World) bool {
	agree := func(a, b int) bool { return a == Unknown || b == Unknown || a == b }
	return c.Rank == o.Rank && c.Size == o.Size && agree(c.LocalRank, o.LocalRank) && agree(c.LocalSize, o.LocalSize)
}

// within says whether the launcher of `outer` may have started the launcher of c. There are two such cases. In the
// first, the outer launcher started only one process. In the second, it started one process per host, and the inner
// launcher has as many hosts or does not give their number.
func (c *claim) within(outer *claim) bool {
	switch {
	case outer.Size == 1:
		return true
	case outer.LocalSize != 1 || c.Size < outer.Size:
		return false
	case c.Nodes != Unknown:
		return c.Nodes == outer.Size
	}
	return true
}

// fill takes unknown values from another launcher of the same world, and the larger number of restarts.
func (c *claim) fill(o *World) {
	known := func(own, other int) int {
		if own == Unknown {
			return other
		}
		return own
	}
	c.LocalRank, c.LocalSize = known(c.LocalRank, o.LocalRank), known(c.LocalSize, o.LocalSize)
	c.Node, c.Nodes = known(c.Node, o.Node), known(c.Nodes, o.Nodes)
	if c.RunID == "" {
		c.RunID = o.RunID
	}
	c.Restart = max(c.Restart, o.Restart)
	c.fillPlace(o)
}

// fillPlace takes host and address from a launcher that started the claim's launcher. It does not take the run's
// identity or the number of restarts, since some processes may not see that launcher.
func (c *claim) fillPlace(o *World) {
	if c.Host == "" {
		c.Host = o.Host
	}
	if c.Address == "" {
		c.Address, c.Port = o.Address, o.Port
	}
}

// sizeless returns the error for a world whose size is not in any variable.
func (env environment) sizeless(c *claim) error {
	return fmt.Errorf("%s says %s, but not how many pods there are; set %s to their number in the pod template (millrace "+
		"manifest does), or %s=none where each pod works alone", c.Launcher.title(), c.said(env), SizeVar, LauncherVar)
}

// complete applies millrace's own variables, which override those of launchers. It fills in the address and port of
// rank 0, and refuses names that are too long or invalid.
func (env environment) complete(w *World) error {
	var err error
	if w.Restart, err = env.optional(RestartVar, 0, MaxSize, w.Restart); err != nil {
		return err
	}
	if w.WorkersPerProcess, err = env.optional(WorkersVar, 1, MaxSize, 0); err != nil {
		return err
	}
	seconds, err := env.optional(WaitVar, 1, maxWait, 0)
	if err != nil {
		return err
	}
	w.Wait = time.Duration(seconds) * time.Second
	if env.has(RunIDVar) {
		w.RunID = env[RunIDVar]
	}
	if len(w.RunID) > maxID || len(w.Host) > maxHost {
		return fmt.Errorf("the run is called %s on host %s; names of runs have at most %d bytes, of hosts %d",
			clipped(w.RunID), clipped(w.Host), maxID, maxHost)
	}
	w.Token = Token{File: env[TokenFileVar]}
	if env.has(TokenVar) {
		if w.Token.File != "" {
			return fmt.Errorf("%s and %s are both set; unset one", TokenVar, env.shown(TokenFileVar))
		}
		w.Token.Variable = TokenVar
	}
	if w.TLS, err = env.encryption(); err != nil {
		return err
	}
	if w.Size == 1 {
		w.Address, w.Port = "", 0
		return nil
	}
	if env.has(MasterAddrVar) {
		w.Address = env[MasterAddrVar]
	}
	if w.Port, err = env.optional(MasterPortVar, 1, maxPort, w.Port); err != nil {
		return err
	}
	switch {
	case w.Address != "":
	case w.OnOneHost():
		w.Address = loopback
	default:
		return fmt.Errorf("%s says rank %d of %d over several hosts, but not where rank 0 is; set %s to its host's name "+
			"or address (and %s, unless %d will do) in all processes", w.Launcher.title(), w.Rank, w.Size, MasterAddrVar,
			MasterPortVar, w.port())
	}
	if w.Port == 0 {
		w.Port = w.port()
	}
	return checkHost(w.Address)
}

const (
	loopback = "127.0.0.1"
	maxPort  = 1<<16 - 1
)

// FirstPort is the lowest of the ports that are derived or drawn for a run, and Ports is their number. They lie below
// the ports that systems assign to outgoing connections.
const FirstPort, Ports = 20000, 9000

// port derives a port from the launcher and the run's identity, so that runs on one host get different ports. Without
// an identity it is DefaultPort.
func (w *World) port() int {
	if w.RunID == "" {
		return DefaultPort
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(string(w.Launcher) + " " + w.RunID)) // Write on a hash never fails
	return FirstPort + int(h.Sum32()%Ports)
}

const (
	maxHost = 253 // most bytes of a host's name, as in the domain name system
	maxID   = 256 // most bytes of a run's identity
	maxWait = 7 * 24 * 60 * 60
)

// checkHost refuses text that is not the name or address of a host.
func checkHost(host string) error {
	if len(host) > maxHost || strings.ContainsFunc(host, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`/\"'[]`, c)
	}) {
		return fmt.Errorf("rank 0 is to be met at host %s; that is no name or address of a host", clipped(host))
	}
	if _, err := netip.ParseAddr(host); strings.Contains(host, ":") && err != nil {
		return fmt.Errorf("rank 0 is to be met at host %s; give the port apart, in %s", clipped(host), MasterPortVar)
	}
	return nil
}
