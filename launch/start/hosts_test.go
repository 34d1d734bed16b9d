package start

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/launch"
)

// asAgent is the argument with which the test binary calls Serve, as millrace does on another host.
const asAgent = "other-half"

// fakeSSH runs a command on this host under another name. Like a user's shell it prints a greeting. It also records its
// arguments. Some hosts fail. Host `gone` never answers. Host `gone-later` does not answer once the file $TOLD.gone
// exists. From then on, host `drop` ends its connection after its hello. Host `cut` ends its connection once something
// is written to $TOLD.cut.
const fakeSSH = `#!/bin/bash
printf '%s\n' "$*" >>"$TOLD"
while [[ $1 == -* ]]; do case $1 in -o) shift ;; --) shift; break ;; esac; shift; done
h=${1#*@}; shift
case $h in
gone*) if [ -e "$TOLD.gone" ] || [ $h = gone ]; then echo "ssh: connect to host $h port 22: No route to host" >&2; exit 255; fi ;;
esac
if [ $h = drop ] && [ -e "$TOLD.gone" ]; then bash -c "$*" </dev/null; exit 255; fi
echo "Welcome to $h"
export ON=$h
case $h in cut*)
  mkfifo "$TOLD.$h"
  exec 3< <(cat 2>/dev/null) # the processes' end of the connection is another's than this one
  bash -c "$*" <&3 & child=$!
  read -r <"$TOLD.$h"
  kill -9 $child; exit 255 ;;
esac
exec bash -c "$*"
`

// overSSH returns a Spec for a script on hosts that are all this machine under other names.
func overSSH(t *testing.T, hosts, script string) (s Spec, out *bytes.Buffer, told string) {
	t.Helper()
	s, out = shell(t, 1, script)
	var err error
	if s.Hosts, err = ParseHosts(hosts); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	told = filepath.Join(dir, "told")
	if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte(fakeSSH), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("TOLD", told)
	s.Remote, s.here = []string{asAgent}, func(string) bool { return false }
	return s, out, told
}

// runOver runs the Spec with the test binary, which exists on every host.
func runOver(ctx context.Context, t *testing.T, s Spec) (Outcome, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The program is the test binary itself, with a first argument that makes it run the script.
	s.Args, s.Program = append([]string{"-script"}, s.Args...), self
	return Run(ctx, s)
}

func TestProcessesOfSeveralHosts(t *testing.T) {
	s, out, told := overSSH(t, "u@a:2,b:1", `env | grep -E ^\(MILLRACE_\|ON=\|OMP\|HIDDEN\) | sed "s/^/$MILLRACE_RANK:/"
pwd >&2`)
	const secret = "0123456789-the-token"
	s.Env = append(s.Env, launch.TokenVar+"="+secret, "MILLRACE_NATIVE=/n.so", "OMP_NUM_THREADS=1", "HIDDEN=1",
		"MILLRACE_RANK=", launch.MasterPortVar+"=4711")
	s.Dir = t.TempDir()
	o, err := runOver(t.Context(), t, s)
	if err != nil || o.Code != 0 {
		t.Fatal(o, err, out)
	}
	env := map[string][]string{}
	for line := range strings.Lines(out.String()) {
		prefix, rest, _ := strings.Cut(strings.TrimSpace(line), "] ")
		rank, variable, found := strings.Cut(rest, ":")
		if !found {
			if rest != s.Dir {
				t.Errorf("%q", line)
			}
			continue
		}
		if host := map[string]string{"0": "a", "1": "a", "2": "b"}[rank]; prefix != "["+rank+" "+host ||
			strings.HasPrefix(variable, "ON=") && variable != "ON="+host || strings.HasPrefix(variable, "HIDDEN") {
			t.Errorf("%q", line)
		}
		env[rank] = append(env[rank], variable)
	}
	for rank, want := range []launch.World{
		{LocalRank: 0, LocalSize: 2, Node: 0, Host: "a"}, {LocalRank: 1, LocalSize: 2, Node: 0, Host: "a"},
		{LocalRank: 0, LocalSize: 1, Node: 1, Host: "b"},
	} {
		w, err := launch.FromEnv(env[fmt.Sprint(rank)])
		if err != nil {
			t.Fatal(err)
		}
		want.Launcher, want.Rank, want.Size, want.Nodes, want.Address, want.Port = launch.Millrace, rank, 3, 2, "a", 4711
		want.RunID, want.Token = w.RunID, launch.Token{Variable: launch.TokenVar}
		if !reflect.DeepEqual(*w, want) || w.RunID == "" || !slices.Contains(env[fmt.Sprint(rank)],
			"OMP_NUM_THREADS=1") || !slices.Contains(env[fmt.Sprint(rank)], launch.TokenVar+"="+secret) {
			t.Errorf("rank %d is in %+v; want %+v", rank, *w, want)
		}
	}
	text, err := os.ReadFile(told)
	if err != nil || strings.Count(string(text), "\n") != 2 || strings.Contains(string(text), secret) ||
		strings.Contains(string(text), "MILLRACE_") || !strings.Contains(string(text), "BatchMode=yes") {
		t.Errorf("ssh is told %q (%v)", text, err)
	}
}

// The first cause on any of the hosts is the outcome, and no process is left.
func TestTheFirstCauseOnSeveralHosts(t *testing.T) {
	for _, c := range []struct {
		hosts, script string
		code, rank    int
		how           string
	}{
		{"a:1,b:1", `[ $MILLRACE_RANK = 1 ] && exit 2; sleep 0.1; exit 3`, 2, 1, "rank 1 on b ended with exit code 2"},
		{"a:2", `[ $MILLRACE_RANK = 1 ] && kill -9 $$; sleep 0.1; exit 3`, 137, 1,
			"rank 1 was ended by signal 9 (killed)"},
		{"a:1,b:1", `[ $MILLRACE_RANK = 1 ] && exit 1; sleep 1000`, 1, 1, "rank 1 on b ended with exit code 1"},
		{"a:1,cut:1", `[ $MILLRACE_RANK = 1 ] && sleep 0.5 && echo >$TOLD.cut && sleep 1000
trap 'exit 3' TERM; sleep 1; exit 3`, 3, 1,
			"rank 1 is lost: the connection to host cut ended (ssh: exit status 255)"},
	} {
		s, out, _ := overSSH(t, c.hosts, "echo pid $$; "+c.script)
		s.Notice, s.Grace = 500*time.Millisecond, 300*time.Millisecond
		o, err := runOver(t.Context(), t, s)
		if err != nil || o.Code != c.code || o.Rank != c.rank || o.How != c.how {
			t.Errorf("%s %s: %+v, %v; want code %d of rank %d, %q\n%s", c.hosts, c.script, o, err, c.code, c.rank, c.how, out)
		}
		for line := range strings.Lines(out.String()) {
			_, number, _ := strings.Cut(strings.TrimSpace(line), "pid ")
			pid, err := strconv.Atoi(number)
			if err != nil || !soon(func() bool { return dead(pid) }) {
				t.Errorf("%s: %q is still there (%v)", c.hosts, line, err)
			}
		}
	}
}

// If the launcher is gone, the processes of other hosts are told to stop.
func TestAConnectionThatEndsStopsProcesses(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, asAgent)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ended")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(in, `{"Order":{"Program":"/bin/sh","Args":["-c","trap 'sleep 0.1; echo saved >%s; exit 0' TERM; `+
		`touch %[1]s.on; while :; do sleep 0.02; done"],"Ranks":[0]}}`+"\n", file)
	if !soon(func() bool { _, err := os.Stat(file + ".on"); return err == nil }) {
		t.Fatal("nothing is started")
	}
	in.Close()
	if err := c.Wait(); err != nil {
		t.Error(err, out.String())
	}
	if text, err := os.ReadFile(file); string(text) != "saved\n" {
		t.Error(text, err, out.String())
	}
}

// A signal goes to the processes of all hosts.
func TestASignalStopsAllHosts(t *testing.T) {
	s, out, _ := overSSH(t, "a:1,b:2", `trap 'echo saved; exit 0' INT; echo ready; while :; do sleep 0.02; done`)
	ctx, cancel := context.WithCancelCause(t.Context())
	s.Stdout = writer(func(text []byte) (int, error) {
		n, err := out.Write(text)
		if strings.Count(out.String(), "ready") == 3 {
			cancel(bySignal(syscall.SIGINT))
		}
		return n, err
	})
	if o, err := runOver(ctx, t, s); err != nil || o.Code != 130 || strings.Count(out.String(), "saved") != 3 {
		t.Errorf("%+v, %v: %s", o, err, out)
	}
}

// A run that starts again goes on without a host that no longer answers.
func TestAnotherStartWithoutALostHost(t *testing.T) {
	s, out, _ := overSSH(t, "gone-later:1,b:2", `echo "$MILLRACE_RESTART: $MILLRACE_RANK of $MILLRACE_WORLD_SIZE at `+
		`$MILLRACE_MASTER_ADDR"
[ $MILLRACE_RESTART = 1 ] && exit 0; sleep 0.1; touch $TOLD.gone; exit 3`)
	s.Restarts = 1
	o, err := runOver(t.Context(), t, s)
	for _, want := range []string{"[0 gone-later] 0: 0 of 3 at gone-later\n", "[2 b] 0: 2 of 3 at gone-later\n",
		"[0] 1: 0 of 2 at 127.0.0.1\n", "[1] 1: 1 of 2 at 127.0.0.1\n", "host gone-later cannot be used"} {
		if err != nil || o.Code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%+v, %v: no %q in\n%s", o, err, want, out)
		}
	}
}

// A run that starts again also leaves out a host that is lost between its hello and the start of its processes. If no
// host is left, the outcome is the first failure of the previous start.
func TestAnotherStartWithoutAHostThatCannotStart(t *testing.T) {
	for hosts, want := range map[string]struct {
		code int
		says []string
	}{
		"drop:1,b:2": {0, []string{"[0] 1: 0 of 2 at 127.0.0.1\n", "[1] 1: 1 of 2 at 127.0.0.1\n",
			"going on without hosts that cannot be used: host drop: ssh: exit status 255"}},
		"drop:2": {137, []string{"no other start: host drop: ssh: exit status 255"}},
	} {
		s, out, _ := overSSH(t, hosts, `echo "$MILLRACE_RESTART: $MILLRACE_RANK of $MILLRACE_WORLD_SIZE at `+
			`$MILLRACE_MASTER_ADDR"
[ $MILLRACE_RESTART = 1 ] && sleep 0.5 && exit 0; sleep 0.1; touch $TOLD.gone; kill -9 $$`)
		s.Restarts = 1
		o, err := runOver(t.Context(), t, s)
		for _, line := range want.says {
			if err != nil || o.Code != want.code || !strings.Contains(out.String(), line) {
				t.Errorf("%s: %+v, %v: no %q in\n%s", hosts, o, err, line, out)
			}
		}
	}
}

func TestHostsThatCannotBeUsed(t *testing.T) {
	for hosts, want := range map[string]string{
		"a,gone": "host gone cannot be used: ssh: exit status 255: ssh: connect to host gone port 22: No route to host",
		"a,b:0":  `"b:0" has no number of processes`, "a:x": `"a:x" has no number`, "a:2,a:1": "host a is there twice",
		"-oProxyCommand=x": "is no host", "": "is no host", "a,,b": "is no host", "a b": "is no host", "a;b": "is no host",
		"$(x)": "is no host", "::1": "stands in brackets", "localhost,b": "localhost is another host for everybody",
		"a,localhost:2,b": "localhost is another host for everybody", "a,u@a": "host a is there twice",
		"[a]:1":      "is no host",
		"a:4096,b:1": "4097 processes",
	} {
		list, err := ParseHosts(hosts)
		if err == nil {
			s, _, _ := overSSH(t, "a", "exit 0")
			s.Hosts = list
			_, err = runOver(t.Context(), t, s)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", hosts, err, want)
		}
	}
	s, _, _ := overSSH(t, "a,b", "exit 0")
	s.Dir = "/no/such/folder"
	if _, err := runOver(t.Context(), t, s); err == nil || !strings.Contains(err.Error(), "host a: ") ||
		!strings.Contains(err.Error(), "/no/such/folder") {
		t.Errorf("a folder that is not there: %v", err)
	}
	s, _, _ = overSSH(t, "a,b", "exit 0")
	s.Program = "/no/such/millrace"
	if _, err := Run(t.Context(), s); err == nil || !strings.Contains(err.Error(),
		"the same millrace at /no/such/millrace") {
		t.Errorf("a program that is not there: %v", err)
	}
}

// One machine under two names is refused, since its cores and memory would count twice.
func TestOneMachineUnderTwoNames(t *testing.T) {
	own, err := os.Hostname()
	short, _, dotted := strings.Cut(own, ".")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := shell(t, 1, "exit 0")
	s.Hosts, s.here = []Host{{"a", 1}, {"a.site", 2}}, func(name string) bool { return strings.HasPrefix(name, "a") }
	if _, err := Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), "a and a.site are both this host") {
		t.Error(err)
	}
	if !isHere(own) || dotted && !isHere(short) || isHere("x"+own) {
		t.Errorf("%s is not this host", own)
	}
}

// Ports for rank 0 are outside of the range from which systems take ports for outgoing connections.
func TestPortsAreNotHandedOut(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Skip(err)
	}
	var first, last int
	if _, err := fmt.Sscan(string(text), &first, &last); err != nil || first < launch.FirstPort+launch.Ports {
		t.Skipf("this system hands out ports from %d on (%v)", first, err)
	}
	for range 20 {
		port, err := freePort()
		if n, wrong := strconv.Atoi(port); err != nil || wrong != nil || n < launch.FirstPort || n >= first {
			t.Errorf("port %s, and the system hands out those from %d on (%v)", port, first, err)
		}
	}
}

func TestParseHosts(t *testing.T) {
	got, err := ParseHosts("a:2,u@b.c,[fe80::1%eth0]:3,root@[::2]")
	want := []Host{{"a", 2}, {"u@b.c", 1}, {"fe80::1%eth0", 3}, {"root@::2", 1}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// slow receives what processes print. For each line, it sends on the channel `hears`, and then waits for the channel
// `goesOn`.
type slow struct{ hears, goesOn chan struct{} }

func (s slow) says(int, bool, []byte) error {
	s.hears <- struct{}{}
	<-s.goesOn
	return nil
}

func (s slow) ended(end) {}

// An ssh that has ended is not killed, because its process number may be in use again. This holds even while its last
// output is still being read.
func TestAnEndedConnectionIsNotKilled(t *testing.T) {
	s, _, _ := overSSH(t, "a", "")
	defer func(was func(int)) { killGroup = was }(killGroup)
	var kills atomic.Int32
	killGroup = func(int) { kills.Add(1) }
	s.Program = "sh"
	s.Remote = []string{"-c", `echo '{"Hello":{"Version":1,"Port":"1"}}'; read -r order; echo '{"Started":{}}'
echo '{"Said":{"Rank":0,"Line":""}}'`}
	to := slow{make(chan struct{}), make(chan struct{})}
	r, err := reach(t.Context(), &s, s.Hosts[0], to)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.start(order{Ranks: []int{0}}); err != nil {
		t.Fatal(err)
	}
	<-to.hears
	if !soon(func() bool { return errors.Is(syscall.Kill(r.cmd.Process.Pid, 0), syscall.ESRCH) }) {
		t.Fatal("ssh goes on")
	}
	before := kills.Load()
	r.end()
	if n := kills.Load(); n != before {
		t.Errorf("%d kills behind its end", n-before)
	}
	close(to.goesOn)
	<-r.over
}
