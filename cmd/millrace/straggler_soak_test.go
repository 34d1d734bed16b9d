package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// rankOf returns the process of a rank that a launcher has started; 0 if it is not there yet.
func rankOf(launcher, rank int) int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0
	}
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		_, behind, named := bytes.Cut(stat, []byte(") "))
		if fields := bytes.Fields(behind); err != nil || !named || string(fields[1]) != strconv.Itoa(launcher) {
			continue
		}
		environment, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && bytes.Contains(environment, fmt.Appendf(nil, "MILLRACE_RANK=%d\x00", rank)) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			return pid
		}
	}
	return 0
}

// heard collects the output of a program, and signals when a word has occurred.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
	word string
	came chan struct{}
}

func (h *heard) Write(text []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Write(text)
	if h.word != "" && strings.Contains(h.text.String(), h.word) {
		h.word = ""
		close(h.came)
	}
	return len(text), nil
}

// slowed trains in two processes and returns the output. After the first step it pauses the processes of these ranks
// for 7 of every 10 milliseconds.
func slowed(t *testing.T, p *clitest.Program, ranks ...int) string {
	t.Helper()
	c := p.Command(t, strings.Fields("launch -n 2 -- train --model mlp --set hidden=16384 --data digits --batch 512 "+
		"--micro-batches 4 --stages 2 --schedule 1f1b --steps 100 --overwrite --out slowed"))
	h := &heard{word: "step 1/100", came: make(chan struct{})}
	c.Stdout, c.Stderr = h, h
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.came:
	case <-time.After(2 * time.Minute):
		c.Process.Kill()
		t.Fatalf("no step is done:\n%s", h.text.String())
	}
	over := make(chan struct{})
	var all sync.WaitGroup
	for _, rank := range ranks {
		pid := rankOf(c.Process.Pid, rank)
		if pid == 0 {
			t.Errorf("rank %d is not there", rank)
			continue
		}
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if syscall.Kill(pid, syscall.SIGSTOP) != nil {
					return
				}
				time.Sleep(7 * time.Millisecond)
				syscall.Kill(pid, syscall.SIGCONT)
				time.Sleep(3 * time.Millisecond)
			}
		})
	}
	err := c.Wait()
	close(over)
	all.Wait()
	if err != nil {
		t.Fatalf("%v\n%s", err, h.text.String())
	}
	return h.text.String()
}

// A process that gets less processor time than the other process is named as a straggler. If both processes get equally
// little, none is named, and the output says that they are about equally slow.
func TestASlowedProcessIsNamed(t *testing.T) {
	soaking(t)
	p := clitest.Trainer(t)
	if said := slowed(t, p, 1); !strings.Contains(said, "; stage 1) is a straggler: for 20 steps it has computed ") ||
		strings.Contains(said, "; stage 0) is a straggler") ||
		!strings.Contains(said, "Stragglers\n  worker 1 (rank 1 on ") {
		t.Errorf("with one slow process it said\n%s", said)
	}
	said := slowed(t, p, 0, 1)
	if strings.Contains(said, "is a straggler") || !strings.Contains(said, "about equally slow") {
		t.Errorf("with two slow processes it said\n%s", said)
	}
}
