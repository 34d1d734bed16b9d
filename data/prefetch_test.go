package data

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
)

// brittle panics once it is let, on every batch behind the first step.
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

// A panic while a batch is made is an error of everybody who asked for it. That includes those that waited for
// another to make it.
func TestAPanicReachesAllWhoWaitForABatch(t *testing.T) {
	let := make(chan struct{})
	p := Prefetch(brittle{let: let}, 1)
	if _, err := p.Batch(0, 4, 0, 4); err != nil { // which has the next step made ahead
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
	time.Sleep(10 * time.Millisecond) // all of them wait, as far as that can be told
	close(let)
	all.Wait()
}
