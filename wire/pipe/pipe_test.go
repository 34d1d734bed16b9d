package pipe_test

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/pipe"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestItIsACarrier(t *testing.T) { wiretest.Conforms(t, pipe.New) }

func TestItNeedsAWorker(t *testing.T) {
	if _, err := pipe.New(0); err == nil {
		t.Error("carriers of no workers were made")
	}
}

// TestNoPipeStaysOpen: a closed worker leaves no end of a pipe open, even if another worker makes a pipe to it
// afterwards.
func TestNoPipeStaysOpen(t *testing.T) {
	files := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skipf("this system does not list what is open: %v", err)
		}
		return len(open)
	}
	before := 0
	for range 2 { // the first round makes the runtime open files that it keeps
		before = files()
		all, err := pipe.New(2)
		if err != nil {
			t.Fatal(err)
		}
		for me, c := range all {
			e := wire.Edge{From: me, To: 1 - me}
			c.Send(1, e, 0, []*wire.Buffer{{DType: wire.U8, Shape: []int64{1}, Data: []byte{1}}}, func(error) {})
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if after := files(); after != before {
		t.Errorf("%d files are open, %d were before", after, before)
	}
}

// TestMovedTellsASlowTransferFromAStalledOne: a frame that nobody reads counts as far as it fills the pipe, and no
// further. Once it is read, both workers count all of it.
func TestMovedTellsASlowTransferFromAStalledOne(t *testing.T) {
	all, err := pipe.New(2)
	if err != nil {
		t.Fatal(err)
	}
	const size = 4 << 20 // a pipe holds at most 1 MiB
	frame := func() *wire.Buffer {
		return &wire.Buffer{DType: wire.U8, Shape: []int64{size}, Data: make([]byte, size)}
	}
	e, done := wire.Edge{From: 0, To: 1}, make(chan error, 2)
	all[0].Send(1, e, 0, []*wire.Buffer{frame()}, func(err error) { done <- err })
	for since := time.Now(); all[0].Moved() == 0 && time.Since(since) < 20*time.Second; {
		time.Sleep(time.Millisecond)
	}
	if n, m := all[0].Moved(), all[1].Moved(); n == 0 || n >= size || m != 0 {
		t.Errorf("of a frame that is not read %d bytes are sent and %d received", n, m)
	}
	all[1].Recv(e, 0, frame(), func(err error) { done <- err })
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for rank, c := range all {
		if n := c.Moved(); n < size || n > size+100 {
			t.Errorf("worker %d counts %d bytes of a frame of %d and its prefix", rank, n, size)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
