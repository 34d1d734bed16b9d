package pipe_test

import (
	"os"
	"testing"

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
