package run

import (
	"math/bits"
	"syscall"
	"unsafe"
)

// coreMask is the kernel's set of processors, one bit each.
type coreMask [16]uint64

// allowedCores lists the processors that this process may use; nil where the kernel does not say.
func allowedCores() []int {
	var mask coreMask
	size, _, err := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, uintptr(syscall.Getpid()), unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)))
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
