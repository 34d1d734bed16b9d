package place

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Operations of the futex system call, for memory that only this process uses.
const (
	futexWait = 0 | 128
	futexWake = 1 | 128
)

// Bell wakes a worker. A ring is kept until the worker waits for it.
//
// To wake a goroutine that is locked to a thread, a channel needs another thread, which must first find a processor. If
// all processors compute, that takes until the kernel's next tick. The futex makes the kernel wake the thread at once.
type Bell struct{ rung atomic.Uint32 }

// NewBell returns a Bell that has not been rung.
func NewBell() *Bell { return &Bell{} }

// Ring wakes the waiting worker, or makes its next wait return at once.
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

// placesFor returns how many processors (GOMAXPROCS) the Go scheduler needs for this many workers. A worker is
// nearly always in library calls, and the scheduler takes its processor away only after a delay. With this number
// every worker returns from the kernel without waiting for a processor.
func placesFor(workers int) int { return workers + runtime.NumCPU() }
