package extending_test

import (
	"sync/atomic"
	"testing"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

// begin: carrier
// counting is a carrier that counts the frames that another one sends.
type counting struct {
	wire.Carrier
	frames *atomic.Int64
}

func (c counting) Send(epoch uint32, e wire.Edge, n uint32, frames []*wire.Buffer, done func(error)) {
	c.frames.Add(int64(len(frames)))
	c.Carrier.Send(epoch, e, n, frames, done)
}

// newCounting makes the carriers of workers of one process.
func newCounting(workers int) ([]wire.Carrier, error) {
	all, err := wire.InProcess(workers)
	if err != nil {
		return nil, err
	}
	frames := new(atomic.Int64)
	for i, c := range all {
		all[i] = counting{c, frames}
	}
	return all, nil
}

// end: carrier

// TestCountingIsACarrier runs the tests that every carrier must pass.
func TestCountingIsACarrier(t *testing.T) { wiretest.Conforms(t, newCounting) }
