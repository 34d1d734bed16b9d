package data

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
)

// brittle returns the batch of the first step. For every later batch it waits until `let` is closed, and then panics.
type brittle struct {
	Split
	let chan struct{}
}

func (b brittle) Batch(step, batchSize, firstRow, rows int) (Batch, error) {
	if step == 0 {
		return Batch{}, nil
	}
	<-b.let
	panic("a mistake of the data's")
}

// TestAPanicReachesAllWhoWaitForABatch: a panic while a batch is made becomes an error of all callers that asked for
// the batch. Those that only waited for another caller to make it get the error too.
func TestAPanicReachesAllWhoWaitForABatch(t *testing.T) {
	let := make(chan struct{})
	p := Prefetch(brittle{let: let}, 1)
	if _, err := p.Batch(0, 4, 0, 4); err != nil { // this also starts making the batch of step 1
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			var mistake *crash.Panic
			if _, err := p.Batch(1, 4, 0, 4); !errors.As(err, &mistake) {
				t.Errorf("error %v; want the panic", err)
			}
		})
	}
	time.Sleep(10 * time.Millisecond) // gives all three calls time to wait
	close(let)
	all.Wait()
}
