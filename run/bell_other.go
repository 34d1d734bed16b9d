//go:build !linux

package run

// bell wakes a worker: a rung bell stays so until the worker has heard it.
type bell struct{ rung chan struct{} }

func newBell() *bell { return &bell{rung: make(chan struct{}, 1)} }

// ring wakes whoever waits, or has the next wait return.
func (b *bell) ring() {
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// wait returns once the bell has been rung since the last wait.
func (b *bell) wait() { <-b.rung }

// placesFor asks for nothing: a worker that waits for a channel has given its place back.
func placesFor(int) int { return 0 }
