package slow

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/lab/race"
)

// actAs is the environment variable that makes the test binary play another role.
const actAs = "MILLRACE_SLOW_TEST"

func TestMain(m *testing.M) {
	switch does := os.Getenv(actAs); does {
	case "":
		os.Exit(m.Run())
	case "open": // opens hosts, and waits until the test kills it
		h, err := Open(context.Background(), 2, 1, Rate{"100mbit", 100e6})
		if err != nil {
			panic(err)
		}
		for _, n := range h.all {
			fmt.Println(n.holder.Process.Pid)
		}
		fmt.Println()
		time.Sleep(time.Hour)
	case "take", "give":
		if err := move(does == "take"); err != nil {
			panic(err)
		}
	}
}

const moved = 2 << 20

// move is one side of a transfer from host 1 to host 0: the receiver if `take` is set, and otherwise the sender.
func move(take bool) error {
	at := net.JoinHostPort(Address(0), "5000")
	if !take {
		for {
			c, err := net.Dial("tcp", at)
			if err != nil {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			_, err = c.Write(make([]byte, moved))
			_, _ = io.ReadAll(c)
			return errors.Join(err, c.Close())
		}
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	c, err := l.Accept()
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := io.ReadFull(c, make([]byte, moved)); err != nil {
		return err
	}
	fmt.Println(time.Since(began).Seconds())
	return c.Close()
}

// hosts opens hosts for a test; it skips the test if that is not possible.
func hosts(t *testing.T, n int, r Rate) *Hosts {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces take root")
	}
	for _, program := range []string{"ip", "tc", "unshare", "nsenter", "taskset"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	h, err := Open(t.Context(), n, runtime.NumCPU(), r)
	if err != nil && strings.Contains(err.Error(), "not permitted") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// At the link's rate, all bytes of a transfer take a certain time. The transfer takes at most three times as long. It
// may be faster by the bytes of three buckets, since a link's token bucket lets up to bucketBytes pass without waiting.
func TestLinksHaveTheirRate(t *testing.T) {
	r := Rate{"40mbit", 40e6}
	h := hosts(t, 3, r)
	defer h.Close()
	var both []race.Command
	for _, does := range []string{"take", "give"} {
		both = append(both, race.Command{Path: os.Args[0], Env: append(os.Environ(), actAs+"="+does)})
	}
	c := h.Group(both)
	take, give := exec.Command(c.Path, c.Args...), exec.Command(c.Beside[0].Path, c.Beside[0].Args...)
	take.Env, give.Env = c.Env, c.Beside[0].Env
	give.Stderr = os.Stderr
	if err := give.Start(); err != nil {
		t.Fatal(err)
	}
	out, err := take.Output()
	if err := errors.Join(err, give.Wait()); err != nil {
		t.Fatal(err)
	}
	var took float64
	if _, err := fmt.Sscan(string(out), &took); err != nil {
		t.Fatal(err)
	}
	if least := (moved - 3*bucketBytes) / r.Payload(); took < least || took > 3*moved/r.Payload() {
		t.Errorf("%d bytes in %v s; at %s about %v", moved, took, r.Name, moved/r.Payload())
	}
}

// Hosts disappear when they are closed, and when the process that opened them is killed.
func TestHostsEnd(t *testing.T) {
	h := hosts(t, 2, Rate{"1gbit", 1e9})
	holders := map[string]bool{}
	for _, n := range h.all {
		holders[fmt.Sprint(n.holder.Process.Pid)] = true
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), actAs+"=open")
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != ""; {
		holders[lines.Text()] = true
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	if len(holders) != 6 {
		t.Fatalf("%d holders", len(holders))
	}
	for pid := range holders {
		for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat("/proc/" + pid + "/ns/net"); err != nil {
				break
			}
			if time.Since(began) > 5*time.Second {
				t.Fatalf("the process that holds a host, %s, is still there", pid)
			}
		}
	}
}

// Running finds all processes on hosts, also those in a session of their own. Linked notices a broken link.
func TestWhatRunsOnHosts(t *testing.T) {
	h := hosts(t, 3, Rate{"1gbit", 1e9})
	defer h.Close()
	linked := func(want ...bool) {
		t.Helper()
		for host, is := range want {
			words := h.Across("sh", "-c", Linked(host))
			if err := exec.Command(words[0], words[1:]...).Run(); (err == nil) != is {
				t.Errorf("host %d has a link: %v", host, err)
			}
		}
	}
	linked(true, true, true)
	if err := errors.Join(h.Unplug(t.Context(), 0), h.Silence(t.Context(), 2)); err != nil {
		t.Fatal(err)
	}
	linked(false, true, false)
	var want [4][]int
	for host, words := range map[int][]string{1: h.Inside(1, "sleep", "100"), 3: h.Across("sleep", "100")} {
		c := exec.Command(words[0], words[1:]...)
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		}()
		want[host] = []int{c.Process.Pid}
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		got, err := h.Running()
		if err == nil && slices.EqualFunc(got, want[:], slices.Equal) {
			break
		}
		if err != nil || time.Since(began) > 5*time.Second {
			t.Fatalf("%v runs; want %v (%v)", got, want, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, n := range []int{0, 1, MostHosts + 1} {
		if _, err := Open(t.Context(), n, 1, Rate{"1gbit", 1e9}); err == nil {
			t.Errorf("%d hosts are opened", n)
		}
	}
	if os.Getuid() == 0 {
		_ = hosts(t, 2, Rate{"1gbit", 1e9}).Close()
		if _, err := Open(t.Context(), 2, 1, Rate{"fast", 1e9}); err == nil || !strings.Contains(err.Error(), "tc qdisc") {
			t.Errorf("a rate that tc does not know: %v", err)
		}
	}
}
