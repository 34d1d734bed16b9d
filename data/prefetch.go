package data

import (
	"sync"

	"github.com/millrace-ml/millrace/internal/crash"
)

// request identifies a batch.
type request struct{ step, batchSize, firstRow, rows int }

// pending is a batch that has been made or is being made.
type pending struct {
	request
	done  chan struct{}
	batch Batch
	err   error
}

// prefetched keeps the batches that were made last, since several stages ask for the same rows in succession. It also
// makes the batches that will be asked for next.
type prefetched struct {
	Split
	ahead int

	mu    sync.Mutex
	kept  map[request]*pending
	order []request // oldest first
}

// keptBatches is the number of batches that are kept.
const keptBatches = 256

// Prefetch makes batches before they are asked for. Each request also starts the next `ahead` batches of the same
// number of rows, in the order of training. Callers must not change the batches they get.
func Prefetch(s Split, ahead int) Split {
	return &prefetched{Split: s, ahead: ahead, kept: map[request]*pending{}}
}

// Batch implements Split.
func (p *prefetched) Batch(step, batchSize, firstRow, rows int) (Batch, error) {
	r := request{step, batchSize, firstRow, rows}
	p.mu.Lock()
	mine, fresh := p.entry(r)
	var next []*pending
	for range p.ahead {
		if r.firstRow += rows; r.firstRow+rows > batchSize {
			r.step, r.firstRow = r.step+1, 0
		}
		if r.firstRow+rows > batchSize {
			break // an invalid request, which will fail
		}
		if e, isNew := p.entry(r); isNew {
			next = append(next, e)
		}
	}
	p.mu.Unlock()
	if len(next) > 0 {
		crash.Go(func() {
			for _, e := range next {
				p.fill(e)
			}
		})
	}
	if fresh {
		p.fill(mine)
	}
	<-mine.done
	return mine.batch, mine.err
}

// entry finds or adds the entry of a batch. If there are too many, it drops the oldest.
func (p *prefetched) entry(r request) (e *pending, fresh bool) {
	if e, ok := p.kept[r]; ok {
		return e, false
	}
	e = &pending{request: r, done: make(chan struct{})}
	p.kept[r] = e
	p.order = append(p.order, r)
	if len(p.order) > keptBatches {
		oldest := p.order[0]
		p.order = p.order[1:]
		delete(p.kept, oldest)
	}
	return e, true
}

// fill makes a batch. A panic becomes an error for all callers that wait for the batch.
func (p *prefetched) fill(e *pending) {
	defer close(e.done)
	e.err = crash.Guard(func() (err error) {
		e.batch, err = p.Split.Batch(e.step, e.batchSize, e.firstRow, e.rows)
		return err
	})
}
