package prepare

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
)

// ThreadsPerProcessor is the largest number of operator threads for each processor. With more, threads that spin while
// they wait take processor time from the threads that they wait for, and a step never ends.
const ThreadsPerProcessor = 8

// CheckThreads refuses more operator threads than this machine's processors can serve. It does not limit workers with
// one thread each, because they sleep while they wait. It does not check a job with a cluster file, which may describe
// another machine.
func CheckThreads(j *job.Job) error {
	most := ThreadsPerProcessor * runtime.NumCPU()
	if j.Machine.Cluster != "" || j.Machine.ThreadsPerWorker == 1 || j.Machine.ThreadsPerWorker <= most/j.Machine.Workers {
		return nil
	}
	return cli.BadInput(fmt.Errorf("--threads-per-worker %d: %d workers with so many threads each are more than %d "+
		"processors take turns with; give %d at most, %d threads a processor",
		j.Machine.ThreadsPerWorker, j.Machine.Workers, runtime.NumCPU(), max(1, most/j.Machine.Workers), ThreadsPerProcessor))
}

// spaceAtLeast and spaceForThread are the bytes of address space that training needs, besides tensors, once libtorch is
// loaded. spaceAtLeast is for the heap's arenas and the buffers of the BLAS. spaceForThread is for the stack and arena
// of each thread.
const (
	spaceAtLeast   = 192 << 20
	spaceForThread = 40 << 20
)

// spaceLimit returns the limit of the address space.
func spaceLimit() (bytes uint64, limited bool) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_AS, &limit)
	return limit.Cur, err == nil && limit.Cur != ^uint64(0)
}

// loadWithoutThreads makes OpenBLAS start no threads while it is loaded into a limited address space. If OpenBLAS could
// not start a thread, it would interrupt the process. Workers set its number of threads later.
func loadWithoutThreads() error {
	const threads = "OPENBLAS_NUM_THREADS"
	if _, limited := spaceLimit(); !limited || os.Getenv(threads) != "" {
		return nil
	}
	return os.Setenv(threads, "1")
}

// checkSpace refuses a limit of the address space that leaves too little after libtorch is loaded. If Go cannot start a
// thread, it ends the process with a dump. If OpenBLAS gets no memory, it asks for memory forever.
func checkSpace() error {
	limit, limited := spaceLimit()
	if !limited {
		return nil
	}
	text, err := os.ReadFile("/proc/self/statm")
	pages, _, _ := strings.Cut(string(text), " ")
	taken, wrong := strconv.ParseUint(pages, 10, 64)
	if err != nil || wrong != nil {
		return nil // how much is in use is unknown
	}
	taken *= uint64(os.Getpagesize())
	need := uint64(spaceAtLeast + spaceForThread*runtime.NumCPU())
	if taken+need <= limit {
		return nil
	}
	return cli.BadInput(fmt.Errorf("the address space is limited to %s (ulimit -v), and %s of it are taken once "+
		"libtorch is loaded; give %s at least, and what the tensors take",
		terminal.Bytes(int64(limit)), terminal.Bytes(int64(taken)), terminal.Bytes(int64(taken+need))))
}

// MemoryBytes returns the values of /proc/meminfo, in bytes.
func MemoryBytes() (map[string]int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	bytes := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		var key, unit string
		var n int64
		if _, err := fmt.Sscan(line, &key, &n, &unit); err == nil && unit == "kB" {
			bytes[strings.TrimSuffix(key, ":")] = n << 10
		}
	}
	return bytes, nil
}
