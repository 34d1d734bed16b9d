package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/wire/tcp"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

// strangersToken is what the processes of the run under attack share.
const strangersToken = "0123456789-the-token-of-the-run"

// listeners are the addresses that a process listens on.
func listeners(t *testing.T, pid int) (all []string) {
	t.Helper()
	sockets := map[string]bool{}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is one
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

// resident is a process's memory in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	if _, rest, found := strings.Cut(string(text), "VmRSS:"); !found {
		t.Fatal("no VmRSS")
	} else if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// attack is whoever knows no token, at one address. It counts who is turned away.
type attack struct {
	at       string
	http     bool
	recorded []byte // what a rightful connection said
	turned   chan string
}

// says says something to the address and waits until it is over.
func (a attack) says(what string, text []byte) {
	raw, err := net.Dial("tcp", a.at)
	if err != nil {
		a.turned <- what + " is let in nowhere"
		return
	}
	defer raw.Close()
	_, _ = raw.Write(text) // as far as it is read
	_ = raw.SetReadDeadline(time.Now().Add(20 * time.Second))
	heard, err := io.ReadAll(io.LimitReader(raw, 1<<20))
	var late net.Error
	switch ok := a.http && bytes.HasPrefix(heard, []byte("HTTP/1.1 200")); {
	case errors.As(err, &late) && late.Timeout():
		a.turned <- what + " may stay"
	case ok || len(heard) > 4096:
		a.turned <- fmt.Sprintf("%s is told %d bytes: %.100q", what, len(heard), heard)
	default:
		a.turned <- ""
	}
}

// drips says a byte now and then.
func (a attack) drips(text []byte) {
	raw, err := net.Dial("tcp", a.at)
	if err != nil {
		a.turned <- "a slow one is let in nowhere"
		return
	}
	defer raw.Close()
	for since, i := time.Now(), 0; time.Since(since) < 20*time.Second; i++ {
		if _, err := raw.Write(text[i%len(text) : i%len(text)+1]); err != nil {
			a.turned <- ""
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	a.turned <- "a slow one may stay"
}

// all attacks with so many of each kind, and returns what is wrong, and how many were turned away.
func (a attack) all(many int) (wrong []string, refused int) {
	garbage := make([]byte, 1<<16)
	_, _ = rand.Read(garbage)
	hello := slices.Concat([]byte("MWTC\x01\x00\x02\x00"), garbage[:80])
	clear(hello[8:24])
	huge := []byte("GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<16) + "\r\n\r\n")
	words := map[string][]byte{
		"garbage": garbage, "a browser": []byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), "a long header": huge,
		"half a hello": hello[:50], "a wrong proof": slices.Concat(hello, garbage[:32]), "a replay": a.recorded,
		"sizes beyond all": bytes.Repeat([]byte{0xff}, 4096), "nothing": nil,
		"a wrong bearer": []byte("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + strangersToken + "!\r\n\r\n"),
	}
	n := 0
	for range many {
		for what, text := range words {
			go a.says(what, text)
		}
		go a.drips(hello)
		n += len(words) + 1
	}
	for range n {
		if said := <-a.turned; said == "" {
			refused++
		} else if !slices.Contains(wrong, said) {
			wrong = append(wrong, said)
		}
	}
	return wrong, refused
}

// handshake is what a process of the run says when it dials another, and whether it is let in.
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

// runOf is the identity of the run of a process.
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

// Strangers at every port of a training are turned away and logged; they take no memory to speak of, and the run
// leaves the weights that it leaves without them.
func TestStrangersDoNotDisturbATraining(t *testing.T) {
	p := profiled(t)
	many := 3
	if os.Getenv("MILLRACE_SOAK") != "" {
		many = 300
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
	of := map[string]int{} // ranks, by address
	if at := listeners(t, g.c.Process.Pid); len(at) > 0 {
		t.Errorf("launch itself listens at %v", at)
	}
	for rank, pid := range ranks {
		at := listeners(t, pid)
		if len(at) != 2-rank { // rank 0's metrics
			t.Errorf("rank %d listens at %v", rank, at)
		}
		for _, a := range at {
			if !strings.HasPrefix(a, "127.0.0.1:") {
				t.Errorf("rank %d listens at %s", rank, a)
			}
			of[a] = rank
			attacks = append(attacks, attack{at: a, http: a == metrics, turned: make(chan string, 100)})
		}
	}
	run := runOf(t, ranks[0])
	if strings.Contains(g.out.String(), strangersToken) {
		t.Fatal("the token is printed")
	}
	for i, a := range attacks {
		if a.http {
			continue
		}
		rank := of[a.at]
		_, err := handshake(t, a.at, nil, strings.ToUpper(strangersToken), run+" 0", rank)
		if !tcp.Final(err) || !strings.Contains(err.Error(), "its token is not this run's") {
			t.Errorf("rank %d, another token: %v", rank, err)
		}
		if _, err := handshake(t, a.at, nil, strangersToken, run+" 1", rank); err == nil ||
			!strings.Contains(err.Error(), "it is of another run, or of another start of it") {
			t.Errorf("rank %d, another start: %v", rank, err)
		}
		if attacks[i].recorded, err = handshake(t, a.at, nil, strangersToken, run+" 0", rank); err != nil {
			t.Errorf("rank %d, somebody who knows all: %v", rank, err)
		}
		if bytes.Contains(attacks[i].recorded, []byte(strangersToken)) {
			t.Error("the token travels")
		}
	}
	before := map[int]int64{}
	for rank, pid := range ranks {
		before[rank] = resident(t, pid)
	}
	began, refused := time.Now(), 0
	var attacking sync.WaitGroup
	var mu sync.Mutex
	for _, a := range attacks {
		attacking.Go(func() {
			wrong, n := a.all(many)
			mu.Lock()
			defer mu.Unlock()
			refused += n
			if len(wrong) > 0 {
				t.Errorf("rank %d at %s: %v", of[a.at], a.at, wrong)
			}
		})
	}
	attacking.Wait()
	for rank, pid := range ranks {
		grown := resident(t, pid) - before[rank]
		t.Logf("rank %d: %.1f MiB before, %+.1f MiB after", rank, float64(before[rank])/(1<<20), float64(grown)/(1<<20))
		if grown > 96<<20 {
			t.Errorf("rank %d has %d bytes more than before", rank, grown)
		}
	}
	t.Logf("%d refused in %v at %d ports", refused, time.Since(began).Round(time.Millisecond), len(attacks))
	knows(t, metrics)
	steps := g.goesOn()
	if err := g.c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, said := g.ended(); code != 143 || !strings.Contains(said, "a connection is refused") ||
		!strings.Contains(said, "a request for metrics is refused") || strings.Contains(said, strangersToken) {
		t.Fatalf("code %d, or nobody is logged\n%s", code, said)
	}
	same(t, p, flags, "run", steps)
}

// knows asks for metrics with the token.
func knows(t *testing.T, metrics string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+metrics+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+strangersToken)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("metrics for whoever knows the token: %v, %s, %s", err, answer.Status, text)
	}
}

// goesOn waits until a run has saved more than it has now, and says what that was at least.
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

// same holds the newest checkpoint of a run to what one process leaves after as many steps.
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
