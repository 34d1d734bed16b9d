//go:build !linux

package run

import "runtime"

// Which thread may preempt which is the operating system's business here.
func yieldToWorkers() (undo func()) { return func() {} }

func becomeWorker() { runtime.LockOSThread() }
