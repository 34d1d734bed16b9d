package run

import (
	"sync"
	"testing"
)

// More threads than processors add to one number, which nothing but the lock guards.
func TestALockIsHeldByOne(t *testing.T) {
	var l lock
	var all sync.WaitGroup
	n := 0
	for range 8 {
		all.Go(func() {
			for range 5000 {
				l.Lock()
				n++
				l.Unlock()
			}
		})
	}
	all.Wait()
	if n != 8*5000 {
		t.Errorf("counted %d of %d", n, 8*5000)
	}
}

func TestAMonitorRingsOnceItIsFree(t *testing.T) {
	var m monitor
	b := newBell()
	m.Lock()
	m.ring(b)
	if b.hasRung() {
		t.Error("rung while the lock is held")
	}
	m.Unlock()
	b.wait()
	m.Lock()
	m.Unlock()
	if b.hasRung() {
		t.Error("rung a second time")
	}
}
