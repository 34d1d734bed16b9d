//go:build !linux

package run

// Nobody is bound to a processor here.
func claimProcessor(int) (giveUp func(), ok bool) { return func() {}, true }
