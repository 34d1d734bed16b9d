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

// Host is some of the ranks.
type Host struct {
	Name      string // for ssh, with or without a user in front of @; "": this host
	Processes int
}

// loopback is where processes of one host meet.
const loopback = "127.0.0.1"

// names are what ssh takes for a host, and for nothing else.
var names = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*$`)

// ParseHosts reads a list of hosts and their processes, as a:2,b:2. A host alone has one process. Addresses of
// version 6 stand in brackets.
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
				h.Name = "" // brackets are for addresses
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

// maxName is the most bytes of a host's name and user.
const maxName = 300

// address is a host's name without a user.
func (h Host) address() string { return h.Name[strings.LastIndexByte(h.Name, '@')+1:] }

// ofLoopback are names that every host has for itself.
var ofLoopback = []string{"localhost", loopback, "::1"}

// isHere says whether a name stands for this host.
func isHere(name string) bool {
	if name == "" || slices.Contains(ofLoopback, name) {
		return true
	}
	own, err := os.Hostname()
	short, _, _ := strings.Cut(own, ".")
	return err == nil && (name == own || name == short)
}

// completeHosts refuses hosts that could not find each other, at this start or at a later one without some.
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

// meetingPlace is where rank 0 is met: the address, and the port where that was said.
func (s *Spec) meetingPlace(hosts []Host) (address, port string) {
	if len(hosts) == 1 {
		return loopback, ""
	}
	address = hosts[0].address()
	for _, line := range s.Env {
		switch name, value, _ := strings.Cut(line, "="); {
		case value == "":
		case name == launch.MasterAddrVar && hosts[0] == s.Hosts[0]: // of the first host, while it is there
			address = value
		case name == launch.MasterPortVar:
			port = value
		}
	}
	return address, port
}

// own are the variables that a run sets. Their values in this process are not passed on.
var own = []string{launch.RankVar, launch.SizeVar, launch.LocalRankVar, launch.LocalSizeVar, launch.NodeVar,
	launch.NodesVar, launch.HostVar, launch.MasterAddrVar, launch.MasterPortVar, launch.RunIDVar, launch.RestartVar,
	launch.LauncherVar, launch.TokenVar, launch.TokenFileVar}

// carried are how the names of variables begin that processes on other hosts get too.
var carried = []string{"MILLRACE_", "OMP_", "OPENBLAS_", "MKL_", "GODEBUG=", "GOGC=", "GOMEMLIMIT=", "GOTRACEBACK=",
	"LD_LIBRARY_PATH="}

// others are the lines of an environment but for a run's own variables.
func others(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.Contains(own, name)
	})
}

// toCarry are the lines of an environment that another host gets.
func toCarry(env []string) []string {
	return slices.DeleteFunc(env, func(line string) bool {
		return !slices.ContainsFunc(carried, func(begin string) bool { return strings.HasPrefix(line, begin) })
	})
}

// environment is what the processes of a host have of the run; each one's ranks come on top.
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
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// freePort is a port of this host that nobody listens on now, of those that no system hands out to who connects: rank 0
// listens on it only later.
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
