package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/wire/tcp"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

// strangersToken is the token of the run under attack.
const strangersToken = "0123456789-the-token-of-the-run"

// listeners returns the addresses that a process listens on.
func listeners(t *testing.T, pid int) (all []string) {
	t.Helper()
	sockets := map[string]bool{}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is valid
	for _, fd := range fds {
		if at, err := os.Readlink(fd); err == nil && strings.HasPrefix(at, "socket:[") {
			sockets[strings.Trim(at, "socket:[]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			const listens = "0A"
			if len(fields) < 10 || fields[3] != listens || !sockets[fields[9]] {
				continue
			}
			host, port, _ := strings.Cut(fields[1], ":")
			n, err := strconv.ParseUint(port, 16, 16)
			if err != nil {
				t.Fatal(err)
			}
			if host = map[string]string{"0100007F": "127.0.0.1", "0200007F": "127.0.0.2",
				"0300007F": "127.0.0.3"}[host]; host == "" {
				host = "beyond the loopback: " + fields[1]
			}
			all = append(all, net.JoinHostPort(host, fmt.Sprint(n)))
		}
	}
	return all
}

// handshake returns what a process of the run sends when it dials another process, and an error if it is refused.
func handshake(t *testing.T, to string, tls *tcp.TLS, token, run string, process int) ([]byte, error) {
	t.Helper()
	own, err := tcp.Listen(t.Context(), tcp.Config{Token: []byte(token), Run: run, Process: 7, TLS: tls,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	way, said := wiretest.Recorder(t, to)
	at, err := tcp.AddressOf(way, tls)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := own.Dial(ctx, at, tcp.Control, process)
	if err == nil {
		c.Close()
	}
	return said(), err
}

// runOf returns the identity of a process's run.
func runOf(t *testing.T, pid int) string {
	t.Helper()
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`MILLRACE_RUN_ID=([0-9a-f]+)`).FindSubmatch(env)
	if id == nil {
		t.Fatal("no run's identity")
	}
	return string(id[1])
}

// Strangers at every port of a training are refused and logged. They take little memory, and the run ends with the same
// weights as without them.
func TestStrangersDoNotDisturbATraining(t *testing.T) {
	to := os.Getenv(attackVar)
	t.Cleanup(func() {
		if to != "" && t.Skipped() {
			t.Error("nothing is attacked, and so nothing measured")
		}
	})
	p := profiled(t)
	siege := siege{many: 3, before: 1500 * time.Millisecond}
	if os.Getenv("MILLRACE_SOAK") != "" || to != "" {
		siege.many, siege.window, siege.pause, siege.before = 100, 20*time.Second, time.Second, 10*time.Second
	}
	if err := os.WriteFile(filepath.Join(p.Dir, "token"), []byte(strangersToken), 0o600); err != nil {
		t.Fatal(err)
	}
	metrics := net.JoinHostPort("127.0.0.1", aPort(t))
	const flags = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --stages 2 --workers 2 " +
		"--eval-rows 8 --optimizer sgd --lr 0.05 "
	g := trains(t, p, "launch -n 2 --token-file token -- "+flags+"--steps 100000000 --save-every 500 --metrics "+metrics+
		" --token-file token --out run")
	g.saved(1)
	ranks := g.processes()
	if len(ranks) != 2 {
		t.Fatalf("processes %v", ranks)
	}
	var attacks []attack
	if at := listeners(t, g.c.Process.Pid); len(at) > 0 {
		t.Errorf("launch itself listens at %v", at)
	}
	for rank, pid := range ranks {
		at := listeners(t, pid)
		if len(at) != 2-rank { // rank 0 also has a port for metrics
			t.Errorf("rank %d listens at %v", rank, at)
		}
		for _, a := range at {
			if !strings.HasPrefix(a, "127.0.0.1:") {
				t.Errorf("rank %d listens at %s", rank, a)
			}
			attacks = append(attacks, attack{at: a, rank: rank, http: a == metrics, turned: make(chan string, 100)})
		}
	}
	run := runOf(t, ranks[0])
	if strings.Contains(g.out.String(), strangersToken) {
		t.Fatal("the token is printed")
	}
	for i := range attacks {
		if a := &attacks[i]; !a.http {
			a.recorded = letsIn(t, a.at, run, a.rank)
		}
	}
	measured := siege.under(t, metrics, ranks, attacks)
	steps := g.goesOn()
	if err := g.c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, said := g.ended(); code != 143 || !strings.Contains(said, "a connection is refused") ||
		!strings.Contains(said, "a request for metrics is refused") || strings.Contains(said, strangersToken) {
		t.Fatalf("code %d, or nobody is logged\n%s", code, said)
	}
	same(t, p, flags, "run", steps)
	if to != "" && !t.Failed() {
		if err := document.WriteJSON(to, measured); err != nil {
			t.Error(err)
		}
	}
}

// letsIn checks which connections a rank accepts, and returns what a permitted client sends to it.
func letsIn(t *testing.T, at, run string, rank int) []byte {
	t.Helper()
	_, err := handshake(t, at, nil, strings.ToUpper(strangersToken), run+" 0", rank)
	if !tcp.Final(err) || !strings.Contains(err.Error(), "its token is not this run's") {
		t.Errorf("rank %d, another token: %v", rank, err)
	}
	if _, err := handshake(t, at, nil, strangersToken, run+" 1", rank); err == nil ||
		!strings.Contains(err.Error(), "it is of another run, or of another start of it") {
		t.Errorf("rank %d, another start: %v", rank, err)
	}
	said, err := handshake(t, at, nil, strangersToken, run+" 0", rank)
	if err != nil {
		t.Errorf("rank %d, somebody who knows all: %v", rank, err)
	}
	if bytes.Contains(said, []byte(strangersToken)) {
		t.Error("the token travels")
	}
	return said
}

// goesOn waits until a run has saved one more checkpoint. It returns the number of steps in the newest checkpoint
// before that one.
func (g *gang) goesOn() int {
	g.t.Helper()
	later, err := checkpoint.Later(filepath.Join(g.dir, "checkpoints"), 0)
	if err != nil || len(later) == 0 {
		g.t.Fatalf("%v, %v", later, err)
	}
	steps := 0
	for _, at := range later {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(at), "step-%d", &n); err == nil {
			steps = max(steps, n)
		}
	}
	g.saved(steps + 1)
	return steps
}

// same compares the newest checkpoint of a run with that of a single process that takes the same number of steps. The
// run must have saved more than `least` steps.
func same(t *testing.T, p *clitest.Program, flags, run string, least int) {
	t.Helper()
	of, err := checkpoint.Open(filepath.Join(p.Dir, run, "checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	steps := of.Manifest.Steps
	of.Close()
	if steps <= least {
		t.Errorf("%d steps are saved, after %d", steps, least)
	}
	code, out := started(t, p, fmt.Sprintf("%s --steps %d --save-every 500 --out %s-alone", flags, steps, run))
	if code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	sameTensors(t, p, run+"/checkpoints", run+"-alone/checkpoints")
}
