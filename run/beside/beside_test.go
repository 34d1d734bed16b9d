package beside

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
)

// closing is a device whose Close is a function that the test gives.
type closing struct {
	engine.Device
	close func() int
}

func (c *closing) Close() int { return c.close() }

// A thread opens its device, does the work in the order in which it was given, leaves, and closes the device. All of
// this happens on one goroutine.
func TestTheLifeOfAThread(t *testing.T) {
	var did []string // used only on the thread, so that the race detector finds other writers
	note := func(what string) { did = append(did, what) }
	dev := &closing{close: func() int { note("close"); return 3 }}
	th := New(func() (engine.Device, error) { note("open"); return dev, nil }, func() { note("leave") })
	last := make(chan struct{})
	for _, name := range []string{"a", "b", "c"} {
		th.Give(Work{Drop: func() { note("dropped " + name) }, Do: func(d engine.Device, err error) {
			if d != dev || err != nil {
				t.Errorf("work %s has device %v, error %v", name, d, err)
			}
			note(name)
			if name == "c" {
				close(last)
			}
		}})
	}
	<-last
	if leaked, again := th.Close(), th.Close(); leaked != 3 || again != 3 {
		t.Errorf("%d handles leaked, %d the second time; want 3", leaked, again)
	}
	if want := []string{"open", "a", "b", "c", "leave", "close"}; !slices.Equal(did, want) {
		t.Errorf("%v, want %v", did, want)
	}
}

// Close waits for the current work. Queued work is dropped, and so is work given later. Each Work is either done or
// dropped.
func TestCloseDropsWhatHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var did []string
		begun, goOn := make(chan struct{}), make(chan struct{})
		th := New(func() (engine.Device, error) { return nil, nil }, func() { did = append(did, "leave") })
		work := func(name string) Work {
			return Work{
				Do:   func(engine.Device, error) { did = append(did, "did "+name) },
				Drop: func() { did = append(did, "dropped "+name) },
			}
		}
		th.Give(Work{Drop: func() { t.Error("work under way is dropped") }, Do: func(engine.Device, error) {
			close(begun)
			<-goOn
			did = append(did, "did first")
			th.Give(work("given by the first"))
		}})
		th.Give(work("second"))
		<-begun
		closed := false
		go func() { th.Close(); closed = true }()
		synctest.Wait()
		if closed || len(did) > 0 {
			t.Errorf("with work under way it is closed (%v), and %v", closed, did)
		}
		close(goOn)
		synctest.Wait()
		if !closed {
			t.Fatal("it is not closed")
		}
		th.Give(work("late"))
		want := []string{"did first", "dropped given by the first", "dropped second", "leave", "dropped late"}
		if !slices.Equal(did, want) {
			t.Errorf("%v, want %v", did, want)
		}
	})
}

// A Drop that gives further work does not deadlock.
func TestDropMayGiveWork(t *testing.T) {
	th := New(func() (engine.Device, error) { return nil, nil }, func() {})
	th.Close()
	dropped := 0
	th.Give(Work{Drop: func() {
		dropped++
		th.Give(Work{Drop: func() { dropped++ }})
	}})
	if dropped != 2 {
		t.Errorf("%d are dropped, want 2", dropped)
	}
}

// If a device cannot be opened, each work gets the error, and no device is closed.
func TestADeviceThatDoesNotOpen(t *testing.T) {
	broken, got := errors.New("no stream"), make(chan error, 2)
	th := New(func() (engine.Device, error) { return nil, broken }, func() {})
	for range 2 {
		th.Give(Work{Do: func(_ engine.Device, err error) { got <- err }})
	}
	if a, b := <-got, <-got; a != broken || b != broken {
		t.Errorf("the work gets %v and %v, want %v", a, b, broken)
	}
	if leaked := th.Close(); leaked != 0 {
		t.Errorf("%d handles leaked", leaked)
	}
}

// Memory that the work does not free on a real device is counted.
func TestLeaksAreCounted(t *testing.T) {
	done := make(chan struct{})
	th := New(func() (engine.Device, error) { return ref.New().Open(0, 1) }, func() {})
	th.Give(Work{Do: func(dev engine.Device, err error) {
		defer close(done)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := dev.Full(engine.Float64, []int64{2}, 1); err != nil {
			t.Error(err)
		}
	}})
	<-done
	if leaked := th.Close(); leaked != 1 {
		t.Errorf("%d handles leaked, want 1", leaked)
	}
}
