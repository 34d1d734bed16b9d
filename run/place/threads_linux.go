package place

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"
)

const (
	schedNormal = 0
	schedBatch  = 3
)

// yieldToWorkers keeps the process's other threads from preempting a worker as soon as they wake. It returns a function
// that undoes this.
//
// The reason is Go's monitor thread. It wakes up to once in 20 µs while goroutines keep threads inside cgo calls, as
// workers do. If every core computes, each wake-up preempts a worker and empties its caches. A thread of Linux's batch
// policy gets the same share of the processor, but waits for the scheduler's tick. Threads started later inherit the
// policy; workers take the normal one (lockThread). If the kernel refuses, nothing changes.
func yieldToWorkers() (undo func()) {
	changed := policyOfAll(schedNormal, schedBatch)
	return func() {
		if changed {
			policyOfAll(schedBatch, schedNormal)
		}
	}
}

// lockThread locks the goroutine to its thread for good. The engine's thread-local state thus ends with the thread. If
// `apart` is set, it marks the thread as one that computes.
func lockThread(apart bool) {
	runtime.LockOSThread()
	if apart {
		setPolicy(syscall.Gettid(), schedNormal)
	}
}

// policyOfAll gives every thread that has the policy `from` the policy `to`. It reports whether any thread changed.
func policyOfAll(from, to uintptr) bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return false
	}
	any := false
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err != nil || policyOf(id) != from {
			continue
		}
		any = setPolicy(id, to) || any
	}
	return any
}

func policyOf(thread int) uintptr {
	p, _, err := syscall.RawSyscall(syscall.SYS_SCHED_GETSCHEDULER, uintptr(thread), 0, 0)
	if err != 0 {
		return ^uintptr(0)
	}
	return p
}

func setPolicy(thread int, policy uintptr) bool {
	var priority int32 // 0, since neither policy uses a priority
	_, _, err := syscall.RawSyscall(syscall.SYS_SCHED_SETSCHEDULER, uintptr(thread), policy,
		uintptr(unsafe.Pointer(&priority)))
	return err == 0
}
