package rendezvous

import (
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// 1,024 ranks in one process meet in time and with little memory.
func TestManyRanksMeet(t *testing.T) {
	const size = 1024
	peak := watchMemory()
	began := time.Now()
	f := newFakeNet()
	var all sync.WaitGroup
	var failed atomic.Int64
	meetings := make([]*Meeting, size)
	for r := range size {
		all.Go(func() {
			c := rank(r, size)
			c.Own.Address = make([]byte, 100)
			var err error
			if r == 0 {
				meetings[r], err = Lead(t.Context(), f, c)
			} else {
				meetings[r], err = Join(t.Context(), f.dial, c)
			}
			if err != nil && failed.Add(1) < 4 {
				t.Error(err)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	bytes := peak()
	t.Logf("%d ranks met in %v with %d KiB each", size, took, bytes/size>>10)
	if took > 10*time.Second || bytes > size<<20 {
		t.Errorf("%d ranks took %v and %d KiB each", size, took, bytes/size>>10)
	}
	for _, m := range meetings {
		if m != nil {
			_ = m.Close()
		}
	}
}

// watchMemory watches the memory in use, heap and stacks. The returned function stops watching, and returns the largest
// growth.
func watchMemory() func() uint64 {
	use := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64() + s[1].Value.Uint64()
	}
	before := use()
	stop, most := make(chan struct{}), make(chan uint64)
	go func() {
		peak := before
		for {
			select {
			case <-stop:
				most <- max(peak, use()) - before
				return
			case <-time.After(2 * time.Millisecond):
				peak = max(peak, use())
			}
		}
	}()
	return func() uint64 { close(stop); return <-most }
}
