//go:build !linux

package place

// Bell wakes a worker: a rung one stays so until the worker has heard it.
type Bell struct{ rung chan struct{} }

// NewBell makes a Bell that is not rung.
func NewBell() *Bell { return &Bell{rung: make(chan struct{}, 1)} }

// Ring wakes whoever waits, or has the next wait return.
func (b *Bell) Ring() {
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// Wait returns once the bell has been rung since the last wait.
func (b *Bell) Wait() { <-b.rung }

// placesFor asks for nothing: a worker that waits for a channel has given its place back.
func placesFor(int) int { return 0 }
