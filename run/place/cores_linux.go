package place

import (
	"math/bits"
	"sync"
	"syscall"
	"unsafe"
)

// coreMask is the kernel's set of processors, one bit each.
type coreMask [16]uint64

// allowed lists the processors that this process may use; nil where the kernel does not say.
//
// It asks once, before any thread is bound. The kernel knows threads only, the main one for the process, and
// Go puts goroutines there too: a worker's, that binds it and ends, leaves it bound for good. Asked again,
// the kernel would say that there is one processor, and a second run of this process would bind no workers.
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

// pinTo keeps a thread of this process on one processor. Where the kernel refuses, the thread
// goes on wherever it may, which costs speed only.
func pinTo(thread, core int) {
	var mask coreMask
	if core < 0 || core/64 >= len(mask) {
		return
	}
	mask[core/64] = 1 << (core % 64)
	syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, uintptr(thread), unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)))
}

func threadID() int { return syscall.Gettid() }
