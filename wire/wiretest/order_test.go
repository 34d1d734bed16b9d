package wiretest

import (
	"strings"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/wire"
)

// careless is a carrier that calls `done` of receives in a wrong order or at the same time.
type careless struct {
	wire.Carrier
	together bool
	mu       sync.Mutex
	kept     func() // `done` of an even receive; it is called after `done` of the next receive
	running  sync.WaitGroup
}

func (c *careless) Recv(e wire.Edge, n uint32, b *wire.Buffer, done func(error)) {
	c.Carrier.Recv(e, n, b, func(err error) {
		switch {
		case c.together:
			c.running.Go(func() { done(err) })
		case n%2 == 0:
			c.mu.Lock()
			c.kept = func() { done(err) }
			c.mu.Unlock()
		default:
			done(err)
			c.mu.Lock()
			kept := c.kept
			c.mu.Unlock()
			kept()
		}
	})
}

// TestDisorderIsFound: if a carrier breaks the duty in either of these ways, the error says what it did.
func TestDisorderIsFound(t *testing.T) {
	for together, want := range map[bool]string{
		false: "the done of receive 1 is called where that of receive 0 is due",
		true:  "the done of receive ", // the goroutines decide which receive is found first
	} {
		for _, sendsFirst := range []bool{false, true} {
			all := carriers(t, wire.InProcess, 2)
			bad := &careless{Carrier: all[1], together: together}
			all[1] = bad
			if err := disorder(t, all, sendsFirst); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("together %v: %v; want %q", together, err, want)
			}
			bad.running.Wait()
			closeAll(t, all)
		}
	}
}
