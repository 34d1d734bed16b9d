package tcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/collective"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

// childVariable makes this binary a worker of a test.
const childVariable = "MILLRACE_TCP_CHILD"

// task is the first message to a worker, on its standard input.
type task struct {
	Rank    int
	Address string
	TLS     bool
	Streams int
	Silence time.Duration // 0: the default
	Lent    int           // smallest frame that is lent, in bytes; 0: the default
	Apart   bool          // the processes may not read each other's memory: from the start, or after Behind frames
	Behind  int
	Does    string // exchange, flood, idle, echo, give, or take
	Echo    string // raw, frames, or messages
	Size    int    // bytes of what is echoed
	Turns   int    // how often a buffer is echoed
	Raw     string // address for a connection without a carrier
}

func (k task) does() func(all []wire.Carrier, rank int) (string, error) {
	switch k.Does {
	case "flood":
		return func(all []wire.Carrier, rank int) (string, error) { return flood(all, rank, math.MaxInt) }
	case "idle":
		return func(all []wire.Carrier, rank int) (string, error) { return flood(all, rank, 10) }
	case "give", "take":
		return k.loans
	case "echo":
		return func(all []wire.Carrier, _ int) (string, error) { return k.echo(all) }
	}
	return exchange
}

func (k task) config() Config {
	c := Config{Address: k.Address, Token: token, Run: "processes", Process: k.Rank, limits: usual}
	if k.TLS {
		c.TLS = &TLS{}
	}
	if k.Lent > 0 {
		c.limits.lent = k.Lent
	}
	if k.Silence > 0 {
		c.limits.silence, c.limits.look = k.Silence, k.Silence/10
	}
	return c
}

// child is a worker in a process of its own. It prints its address, reads both addresses, and does its task.
func child(in io.Reader, out io.Writer) error {
	said := json.NewDecoder(in)
	var k task
	var at []wire.Address
	if err := said.Decode(&k); err != nil {
		return err
	}
	if k.Apart && k.Behind == 0 {
		if err := apart(); err != nil {
			return err
		}
	}
	e, err := Listen(context.Background(), k.config())
	if err != nil {
		return err
	}
	defer e.Close()
	if err := json.NewEncoder(out).Encode(e.Address()); err != nil {
		return err
	}
	if err := said.Decode(&at); err != nil {
		return err
	}
	all, err := e.Carriers(1, at, []int{k.Rank}, max(k.Streams, 1))
	if err != nil {
		return err
	}
	text, err := k.does()(all, k.Rank)
	if err != nil {
		text = err.Error()
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

// exchange sends and receives messages, with credits, sums a vector, and reports what was received.
func exchange(all []wire.Carrier, rank int) (string, error) {
	const messages, workers = 30, 2
	came, broken := make(chan wire.Arrival, messages), make(chan error, 1)
	ports, err := wire.NewPorts(all, []int{rank}, func(int) wire.Config {
		return wire.Config{
			Arrived: func(a wire.Arrival) { came <- a },
			Broken:  func(err error) { broken <- err },
		}
	})
	if err != nil {
		return "", err
	}
	defer ports.Close()
	var table wire.Table
	var edges []wire.Edge
	for from := range workers {
		e, err := table.Edge(wire.Name{From: from, To: 1 - from}, 3)
		if err != nil {
			return "", err
		}
		edges = append(edges, e)
	}
	ranks := []int{0, 1}
	here := func(worker int) bool { return worker == rank }
	if err := collective.NameEdges(&table, 5, ranks, here, true); err != nil {
		return "", err
	}
	group, err := collective.NewGroup(&table, ports.Port(rank), 5, ranks, rank)
	if err != nil {
		return "", err
	}
	ports.Begin(1, table.Edges())()
	var sent sync.WaitGroup
	for k := range uint64(messages) {
		data := make([]byte, k*k*701)
		for i := range data {
			data[i] = byte(uint64(i)*k + uint64(rank))
		}
		sent.Add(1)
		parts := []wire.Buffer{*bufferOf(data)}
		if err := ports.Port(rank).Send(edges[rank], k, 0, parts, func(error) { sent.Done() }); err != nil {
			return "", err
		}
	}
	h := sha256.New()
	for k := range uint64(messages) {
		select {
		case a := <-came:
			if a.Key != k {
				return "", fmt.Errorf("message %d came where %d is due", a.Key, k)
			}
		case err := <-broken:
			return "", err
		}
		a, _ := ports.Port(rank).Take(edges[1-rank], k)
		fmt.Fprintln(h, a.Key, a.Parts[0].Shape)
		h.Write(a.Parts[0].Data)
	}
	sent.Wait()
	vector := wire.Buffer{DType: wire.F64, Shape: []int64{5000}}
	for i := range 5000 {
		vector.Data = binary.LittleEndian.AppendUint64(vector.Data, math.Float64bits(math.Sin(float64(i*(rank+1)))))
	}
	if err := group.AllReduce(context.Background(), []wire.Buffer{vector}, wiretest.SumInto); err != nil {
		return "", err
	}
	h.Write(vector.Data)
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// flood sends and takes messages until it is interrupted, and reports the reason.
func flood(all []wire.Carrier, rank, messages int) (string, error) {
	broken := make(chan error, 1)
	var ports *wire.Ports
	var ready sync.WaitGroup
	ready.Add(1)
	ports, err := wire.NewPorts(all, []int{rank}, func(int) wire.Config {
		return wire.Config{
			Arrived: func(a wire.Arrival) {
				ready.Wait()
				ports.Port(rank).Take(a.Edge, a.Key)
			},
			Broken: func(err error) { broken <- err },
		}
	})
	if err != nil {
		return "", err
	}
	ready.Done()
	defer ports.Close()
	var table wire.Table
	for from := range 2 {
		if _, err := table.Edge(wire.Name{From: from, To: 1 - from}, 2); err != nil {
			return "", err
		}
	}
	mine, _ := table.Find(wire.Name{From: rank, To: 1 - rank})
	ports.Begin(1, table.Edges())()
	data := make([]byte, 100_000)
	for k := range messages {
		sent := make(chan error, 1)
		parts := []wire.Buffer{*bufferOf(data)}
		if ports.Port(rank).Send(mine, uint64(k), 0, parts, func(err error) { sent <- err }) != nil || <-sent != nil {
			break
		}
	}
	return "", <-broken
}

// TestTwoProcesses: two processes exchange the same messages as two workers of one process, over every kind of
// connection.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	inside, err := wire.InProcess(2)
	if err != nil {
		t.Fatal(err)
	}
	want, errs := [2]string{}, [2]error{}
	var all sync.WaitGroup
	for rank := range 2 {
		all.Go(func() { want[rank], errs[rank] = exchange(inside, rank) })
	}
	all.Wait()
	if err := errors.Join(errs[:]...); err != nil || want[0] == want[1] {
		t.Fatal(want, err)
	}
	for _, k := range []task{{}, {Streams: 2}, {TLS: true}, {TLS: true, Streams: 3}, {Lent: allLent}, {Lent: noneLent},
		{Lent: noneLent, Streams: 3}, {Lent: noneLent, TLS: true}} {
		var both []*process
		var at []wire.Address
		for rank := range 2 {
			k.Rank, k.Does = rank, "exchange"
			p := begin(t, k)
			both, at = append(both, p), append(at, p.at)
		}
		for _, p := range both {
			if err := p.in.Encode(at); err != nil {
				t.Fatal(err)
			}
		}
		for rank, p := range both {
			if got := p.line(t); got != want[rank] {
				t.Errorf("%+v: worker %d has %s; in one process it has %s", k, rank, got, want[rank])
			}
			if err := p.command.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestAKilledProcess: if a worker's process is killed, the other process's run ends with an error that names that
// worker.
func TestAKilledProcess(t *testing.T) {
	p := begin(t, task{Rank: 1, Does: "flood"})
	c := task{Rank: 0}.config()
	c.limits.grace = 100 * time.Millisecond
	e, _ := listen(t, c)
	at := []wire.Address{e.Address(), p.at}
	all, err := e.Carriers(1, at, []int{0}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.in.Encode(at); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { _ = p.command.Process.Kill() })
	since := time.Now()
	_, err = flood(all, 0, math.MaxInt)
	var peer *wire.PeerError
	if !errors.As(err, &peer) || peer.Rank != 1 || !peer.Lost || !strings.Contains(err.Error(), "at 127.0.0.1:") {
		t.Error(err)
	}
	if took := time.Since(since); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestACutLink: if a link is cut silently, both ends notice it, and each names the other end. The test shortens the
// limit for silence, and has frames in flight. `make soak` uses the default limits, with and without frames in flight;
// both ends must notice within ten seconds.
func TestACutLink(t *testing.T) {
	t.Parallel()
	if os.Getenv("MILLRACE_SOAK") == "" {
		cutLink(t, task{Does: "flood", Silence: 700 * time.Millisecond}, 5*time.Second)
		return
	}
	for range 10 {
		for _, does := range []string{"flood", "idle"} {
			cutLink(t, task{Does: does}, 10*time.Second)
		}
	}
}

func cutLink(t *testing.T, k task, soon time.Duration) {
	t.Helper()
	do := func(line string) error {
		out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(line)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, bytes.TrimSpace(out))
		}
		return nil
	}
	pid := os.Getpid()
	name, here, there := fmt.Sprintf("mr-tcp-%d", pid), fmt.Sprintf("mra%d", pid), fmt.Sprintf("mrb%d", pid)
	ours := fmt.Sprintf("198.18.%d.%d", pid>>6&255, pid&63*4+1)
	theirs := fmt.Sprintf("198.18.%d.%d", pid>>6&255, pid&63*4+2)
	if err := do("netns add " + name); err != nil {
		t.Skipf("a network of its own cannot be made here: %v", err)
	}
	defer func() {
		_ = exec.Command("ip", "link", "del", here).Run()
		_ = exec.Command("ip", "netns", "del", name).Run()
	}()
	for _, line := range []string{
		"link add " + here + " type veth peer name " + there + " netns " + name,
		"addr add " + ours + "/30 dev " + here, "link set " + here + " up",
		"-n " + name + " addr add " + theirs + "/30 dev " + there, "-n " + name + " link set " + there + " up",
		"-n " + name + " link set lo up",
	} {
		if err := do(line); err != nil {
			t.Skipf("a network of its own cannot be made here: %v", err)
		}
	}
	k.Rank, k.Address = 1, theirs+":0"
	p := begin(t, k, "ip", "netns", "exec", name)
	k.Rank, k.Address = 0, ours+":0"
	e, err := Listen(t.Context(), k.config())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	at := []wire.Address{e.Address(), p.at}
	all, err := e.Carriers(1, at, []int{0}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.in.Encode(at); err != nil {
		t.Fatal(err)
	}
	cut := make(chan time.Time, 1)
	time.AfterFunc(200*time.Millisecond, func() {
		cut <- time.Now()
		if err := do("-n " + name + " link set " + there + " down"); err != nil {
			t.Error(err)
		}
	})
	_, err = k.does()(all, 0)
	since := <-cut
	took := time.Since(since)
	var peer *wire.PeerError
	if !errors.As(err, &peer) || peer.Rank != 1 || !peer.Lost || !strings.Contains(err.Error(), theirs) || took > soon {
		t.Errorf("%s: after %v: %v", k.Does, took, err)
	}
	if got := p.line(t); !strings.Contains(got, "worker 0 failed") || time.Since(since) > soon {
		t.Errorf("%s: after %v the other end says %s", k.Does, time.Since(since), got)
	}
	t.Logf("%s: after %v: %v", k.Does, took, err)
}
