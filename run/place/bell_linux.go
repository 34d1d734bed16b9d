package place

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Operations of the futex system call, on memory of this process alone.
const (
	futexWait = 0 | 128
	futexWake = 1 | 128
)

// Bell wakes a worker: a rung one stays so until the worker has heard it.
//
// A channel would do, but it wakes a goroutine that is locked to a thread by way of another
// thread, which must find a processor first; where all of them compute, that takes until the
// kernel's next tick. The kernel wakes a thread at once.
type Bell struct{ rung atomic.Uint32 }

// NewBell makes a Bell that is not rung.
func NewBell() *Bell { return &Bell{} }

// Ring wakes whoever waits, or has the next wait return.
func (b *Bell) Ring() {
	if b.rung.Swap(1) == 0 {
		syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&b.rung)), futexWake, 1, 0, 0, 0)
	}
}

// Wait returns once the bell has been rung since the last wait.
func (b *Bell) Wait() {
	for !b.rung.CompareAndSwap(1, 0) {
		syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&b.rung)), futexWait, 0, 0, 0, 0)
	}
}

// placesFor is how many processors (GOMAXPROCS) the Go scheduler needs for so many workers. A worker is in calls to
// libraries nearly always, and a processor that it holds there is taken from it only with a delay; with these each
// comes back from the kernel without a wait for one.
func placesFor(workers int) int { return workers + runtime.NumCPU() }
