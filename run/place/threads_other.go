//go:build !linux

package place

import "runtime"

// Which thread may preempt which is the operating system's business here.
func yieldToWorkers() (undo func()) { return func() {} }

func lockThread(bool) { runtime.LockOSThread() }
