package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// watcher ends a process that exceeds its limits or whose context is done.
type watcher struct {
	limits          limits
	pid             int
	began           time.Time
	over            chan struct{}
	hung, overgrown atomic.Bool
	peak            atomic.Int64
}

const (
	lookEvery = 20 * time.Millisecond
	// dumpTime is how long a hanging process has to print its goroutines.
	dumpTime = 2 * time.Second
)

func (w *watcher) until(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-w.over:
			return
		case <-ctx.Done():
			_ = syscall.Kill(-w.pid, syscall.SIGKILL)
			return
		case <-look.C:
		}
		held := residentOf(w.pid)
		w.peak.Store(max(w.peak.Load(), held))
		if w.limits.resident > 0 && held > w.limits.resident {
			w.overgrown.Store(true)
			_ = syscall.Kill(-w.pid, syscall.SIGKILL)
			return
		}
		if w.limits.wall > 0 && time.Since(w.began) > w.limits.wall {
			w.hung.Store(true)
			_ = syscall.Kill(w.pid, syscall.SIGQUIT) // makes Go print all goroutines
			select {
			case <-w.over:
			case <-time.After(dumpTime):
				_ = syscall.Kill(-w.pid, syscall.SIGKILL)
			}
			return
		}
	}
}

// residentOf returns the memory of a process and its children, in bytes; 0 if it has ended.
func residentOf(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0 // it has ended
	}
	held := int64(0)
	if fields := strings.Fields(string(text)); len(fields) > 1 {
		pages, _ := strconv.ParseInt(fields[1], 10, 64)
		held = pages * int64(os.Getpagesize())
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for word := range strings.FieldsSeq(string(children)) {
		if child, err := strconv.Atoi(word); err == nil {
			held += residentOf(child)
		}
	}
	return held
}
