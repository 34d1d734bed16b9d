package place

import (
	"math/bits"
	"sync"
	"syscall"
	"unsafe"
)

// coreMask is the kernel's set of processors, one bit each.
type coreMask [16]uint64

// allowed returns the processors that this process may use; nil if the kernel does not say.
//
// It asks the kernel once, before any thread is bound. The kernel answers for the main thread. If Go runs a worker's
// goroutine on the main thread, that thread stays bound to one processor. A later answer would have only this
// processor, and a second run of this process would bind no workers.
var allowed = sync.OnceValue(askAllowed)

func askAllowed() []int {
	var mask coreMask
	size, _, err := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, uintptr(syscall.Getpid()), unsafe.Sizeof(mask),
		uintptr(unsafe.Pointer(&mask)))
	if err != 0 {
		return nil
	}
	var cores []int
	for word, set := range mask[:size/8] {
		for ; set != 0; set &= set - 1 {
			cores = append(cores, 64*word+bits.TrailingZeros64(set))
		}
	}
	return cores
}

// pinTo binds a thread of this process to one processor. If the kernel refuses, the thread runs on any processor,
// which only costs speed.
func pinTo(thread, core int) {
	var mask coreMask
	if core < 0 || core/64 >= len(mask) {
		return
	}
	mask[core/64] = 1 << (core % 64)
	syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, uintptr(thread), unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)))
}

func threadID() int { return syscall.Gettid() }
