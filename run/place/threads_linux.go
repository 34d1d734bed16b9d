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

// yieldToWorkers keeps the threads that this process has besides the workers' from
// preempting a worker the moment they wake; it returns what undoes that.
//
// Go's monitor thread is why. It wakes up to once in 20 µs as long as goroutines
// keep threads inside cgo calls, which is what a worker does for a living. Where every
// core computes, each time preempts a worker and empties its caches; a pipeline of two
// workers on two cores lost a tenth of its time to it. A thread of Linux's batch policy
// gets its share of the processor as before but waits for the scheduler's tick. Threads
// started later inherit the policy from one of these; workers take the normal one
// (lockThread). Where the kernel refuses, nothing changes.
func yieldToWorkers() (undo func()) {
	changed := policyOfAll(schedNormal, schedBatch)
	return func() {
		if changed {
			policyOfAll(schedBatch, schedNormal)
		}
	}
}

// lockThread locks the goroutine to its thread, never to unlock it: what the engine keeps
// by thread ends with the thread. apart marks the thread as one that computes.
func lockThread(apart bool) {
	runtime.LockOSThread()
	if apart {
		setPolicy(syscall.Gettid(), schedNormal)
	}
}

// policyOfAll gives policy to to every thread that has policy from, and says whether there was one.
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
	var priority int32 // both policies have none
	_, _, err := syscall.RawSyscall(syscall.SYS_SCHED_SETSCHEDULER, uintptr(thread), policy,
		uintptr(unsafe.Pointer(&priority)))
	return err == 0
}
