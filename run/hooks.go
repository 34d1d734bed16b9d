package run

import (
	"fmt"
	"sync"

	"github.com/millrace-ml/millrace/internal/crash"
)

// hookQueue calls hooks one after the other on its own goroutine, so that workers do not wait for them. Its length
// is not limited.
type hookQueue struct {
	mu    sync.Mutex
	calls []func()
	more  *sync.Cond
	ended bool
	done  chan struct{}
	fail  func(error) // ends the run with an error
}

func newHookQueue(fail func(error)) *hookQueue {
	q := &hookQueue{done: make(chan struct{}), fail: fail}
	q.more = sync.NewCond(&q.mu)
	crash.Go(q.run)
	return q
}

func (q *hookQueue) add(f func()) {
	q.mu.Lock()
	q.calls = append(q.calls, f)
	q.mu.Unlock()
	q.more.Signal()
}

func (q *hookQueue) run() {
	defer close(q.done)
	for {
		q.mu.Lock()
		for len(q.calls) == 0 && !q.ended {
			q.more.Wait()
		}
		if len(q.calls) == 0 {
			q.mu.Unlock()
			return
		}
		calls := q.calls
		q.calls = nil
		q.mu.Unlock()
		for _, f := range calls {
			if err := crash.Guard(func() error { f(); return nil }); err != nil {
				q.fail(fmt.Errorf("run: a hook: %w", err))
			}
		}
	}
}

// close returns once every call that was added has been made.
func (q *hookQueue) close() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.more.Signal()
	<-q.done
}
