package beside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
)

// Everything runs on one OS thread, which ends with the Thread, so that an engine's thread-local state cannot affect
// other goroutines. (The process's first thread never ends; if the Thread gets it, the test tries again.)
func TestTheThreadIsItsOwn(t *testing.T) {
	for {
		threads := make(chan int, 5)
		here := func() { threads <- syscall.Gettid() }
		th := New(func() (engine.Device, error) { here(); return nil, nil }, here)
		for range 2 {
			th.Give(Work{Do: func(engine.Device, error) { here() }, Drop: func() {}})
		}
		opened := <-threads
		th.Close()
		close(threads)
		for id := range threads {
			if id != opened {
				t.Errorf("it is opened on thread %d, and goes on on thread %d", opened, id)
			}
		}
		if opened == syscall.Getpid() {
			continue
		}
		task := fmt.Sprintf("/proc/self/task/%d", opened)
		for began := time.Now(); ; runtime.Gosched() {
			if _, err := os.Stat(task); errors.Is(err, fs.ErrNotExist) {
				return
			}
			if time.Since(began) > 10*time.Second {
				t.Fatalf("thread %d is still there", opened)
			}
		}
	}
}
