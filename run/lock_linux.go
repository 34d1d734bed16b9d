package run

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

// lock is a mutex for locked threads.
//
// A goroutine that waits for a sync.Mutex and is locked to a thread comes back by way of another thread, as from a
// channel (see bell): what it waited for takes microseconds, its return may take until the
// kernel's next tick. Here the thread itself waits, in the kernel (Drepper, Futexes Are Tricky, 2011, the mutex of "Take 3").
type lock struct{ state atomic.Uint32 }

// States of a lock.
const (
	lockFree uint32 = iota
	lockHeld
	lockAwaited // held, and somebody may be waiting
)

func (l *lock) Lock() {
	if l.state.CompareAndSwap(lockFree, lockHeld) {
		return
	}
	for l.state.Swap(lockAwaited) != lockFree {
		syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&l.state)), futexWait, uintptr(lockAwaited), 0, 0, 0)
	}
}

func (l *lock) Unlock() {
	if l.state.Swap(lockFree) == lockAwaited {
		syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&l.state)), futexWake, 1, 0, 0, 0)
	}
}
