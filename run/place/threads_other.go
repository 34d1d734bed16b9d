//go:build !linux

package place

import "runtime"

// yieldToWorkers does nothing: here the operating system decides which thread may preempt which.
func yieldToWorkers() (undo func()) { return func() {} }

func lockThread(bool) { runtime.LockOSThread() }
