package start

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/launch"
)

// Host describes the processes of one host.
type Host struct {
	Name      string // for ssh, as HOST or USER@HOST; "": this host
	Processes int
}

// loopback is the address where the processes of a single host meet.
const loopback = "127.0.0.1"

// names matches words that ssh can only understand as a host.
var names = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*$`)

// ParseHosts reads a list of hosts with their numbers of processes, such as a:2,b:2. A host without a number has one
// process. IPv6 addresses are in brackets.
func ParseHosts(list string) ([]Host, error) {
	var hosts []Host
	for part := range strings.SplitSeq(list, ",") {
		h := Host{Name: part, Processes: 1}
		bare, ended := strings.CutSuffix(part, "]")
		if i := strings.LastIndexByte(part, ':'); i >= 0 && !ended {
			n, err := strconv.Atoi(part[i+1:])
			if err != nil || n < 1 || n > MaxProcesses {
				return nil, fmt.Errorf("%q has no number of processes behind its colon; give HOST:NUMBER, 1 to %d", part,
					MaxProcesses)
			}
			h.Processes = n
			h.Name = part[:i]
			bare, ended = strings.CutSuffix(h.Name, "]")
		}
		if ended {
			user, address, _ := strings.Cut(bare, "[")
			h.Name = user + address
			if !strings.Contains(address, ":") {
				h.Name = "" // only addresses may stand in brackets; this name is refused below
			}
		} else if strings.Contains(h.Name, ":") {
			return nil, fmt.Errorf("%q has colons; an address of version 6 stands in brackets: [ADDRESS]:NUMBER", part)
		}
		if len(h.Name) > maxName || !names.MatchString(h.Name) {
			return nil, fmt.Errorf("%q is no host; give HOST:NUMBER, separated by commas", part)
		}
		if slices.ContainsFunc(hosts, func(o Host) bool { return o.address() == h.address() }) {
			return nil, fmt.Errorf("host %s is there twice; give it once, with all its processes", h.address())
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// maxName is the largest size of a host's name with its user, in bytes.
const maxName = 300

// address returns a host's name without the user.
func (h Host) address() string { return h.Name[strings.LastIndexByte(h.Name, '@')+1:] }

// ofLoopback lists names by which any host can reach itself.
var ofLoopback = []string{"localhost", loopback, "::1"}

// isHere says whether a name means this host.
func isHere(name string) bool {
	if name == "" || slices.Contains(ofLoopback, name) {
		return true
	}
	own, err := os.Hostname()
	short, _, _ := strings.Cut(own, ".")
	return err == nil && (name == own || name == short)
}

// completeHosts refuses hosts that could not reach each other, at this start or at a later one with fewer hosts. It
// also refuses invalid names, and this host under two names.
func (s *Spec) completeHosts() error {
	if s.here == nil {
		s.here = isHere
	}
	here := ""
	for _, h := range s.Hosts {
		switch {
		case h.Name == "" && len(s.Hosts) > 1:
			return errors.New("a host has no name, and there are others; name all")
		case h.Name != "" && !names.MatchString(h.Name):
			return fmt.Errorf("%q is no name of a host", h.Name)
		case slices.Contains(ofLoopback, h.address()) && len(s.Hosts) > 1:
			return fmt.Errorf("%s is another host for everybody; give the name that the others have for it", h.Name)
		case !s.here(h.Name):
		case here != "":
			return fmt.Errorf("%s and %s are both this host; give it once, with all its processes", here, h.Name)
		default:
			here = h.Name
		}
	}
	return nil
}

// meetingPlace returns the address of rank 0, and its port if one was given. For a single host it returns the loopback
// and no port.
func (s *Spec) meetingPlace(hosts []Host) (address, port string) {
	if len(hosts) == 1 {
		return loopback, ""
	}
	address = hosts[0].address()
	for _, line := range s.Env {
		switch name, value, _ := strings.Cut(line, "="); {
		case value == "":
		case name == launch.MasterAddrVar && hosts[0] == s.Hosts[0]: // ignored if the first host is left out
			address = value
		case name == launch.MasterPortVar:
			port = value
		}
	}
	return address, port
}

// own lists the variables that processes do not inherit from an environment, because Run sets them or the processes
// must not get them.
var own = []string{launch.RankVar, launch.SizeVar, launch.LocalRankVar, launch.LocalSizeVar, launch.NodeVar,
	launch.NodesVar, launch.HostVar, launch.MasterAddrVar, launch.MasterPortVar, launch.RunIDVar, launch.RestartVar,
	launch.LauncherVar, launch.TokenVar, launch.TokenFileVar}

// carried lists prefixes of lines NAME=value. Processes on other hosts get the lines of Spec.Env that have one of these
// prefixes.
var carried = []string{"MILLRACE_", "OMP_", "OPENBLAS_", "MKL_", "GODEBUG=", "GOGC=", "GOMEMLIMIT=", "GOTRACEBACK=",
	"LD_LIBRARY_PATH="}

// others returns the lines of an environment without a run's own variables.
func others(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.Contains(own, name)
	})
}

// toCarry returns the lines of an environment that another host gets.
func toCarry(env []string) []string {
	return slices.DeleteFunc(env, func(line string) bool {
		return !slices.ContainsFunc(carried, func(begin string) bool { return strings.HasPrefix(line, begin) })
	})
}

// environment returns the variables that all processes of a host have. The variables of each rank are added later.
func (s *Spec) environment(hosts []Host, node int, port string, start int) []string {
	var env []string
	set := func(name string, value any) { env = append(env, fmt.Sprint(name, "=", value)) }
	total := 0
	for _, h := range hosts {
		total += h.Processes
	}
	address, said := s.meetingPlace(hosts)
	if said != "" {
		port = said
	}
	set(launch.SizeVar, total)
	set(launch.LocalSizeVar, hosts[node].Processes)
	set(launch.NodeVar, node)
	set(launch.NodesVar, len(hosts))
	set(launch.HostVar, hosts[node].address())
	set(launch.MasterAddrVar, address)
	set(launch.MasterPortVar, port)
	set(launch.RunIDVar, s.id)
	set(launch.RestartVar, start)
	set(launch.LauncherVar, launch.Millrace)
	set(launch.TokenVar, s.token)
	return env
}

// random returns n random bytes as text.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // rand.Read never fails
	return hex.EncodeToString(b)
}

// freePort returns a port on which nobody listens now on the loopback. Rank 0 listens on it only later. Until then no
// outgoing connection takes it, because it is not a port that systems assign to such connections.
func freePort() (string, error) {
	var err error
	for range 100 {
		port := strconv.Itoa(launch.FirstPort + mathrand.IntN(launch.Ports))
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort(loopback, port)); err == nil {
			return port, l.Close()
		}
	}
	return "", fmt.Errorf("no port from %d on is free on the loopback: %w", launch.FirstPort, err)
}
