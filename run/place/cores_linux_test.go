package place

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"unsafe"
)

// After a run whose worker was bound on the main thread, the next run still finds all processors.
func TestProcessorsOutliveABoundMainThread(t *testing.T) {
	before := slices.Clone(allowed())
	asked := askAllowed()
	if len(before) == 0 || len(asked) == 0 {
		t.Fatalf("this process may use the processors %v, and now %v", before, asked)
	}
	main := os.Getpid()
	pinTo(main, before[0])
	defer func() {
		var mask coreMask
		for _, c := range asked {
			mask[c/64] |= 1 << (c % 64)
		}
		syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, uintptr(main), unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)))
	}()
	if bound := askAllowed(); len(bound) != 1 {
		t.Fatalf("the main thread was bound to processor %d, and may use %v", before[0], bound)
	}
	if after := allowed(); !slices.Equal(after, before) {
		t.Errorf("this process may use the processors %v once its main thread is bound, %v before", after, before)
	}
}
