//go:build !linux

package run

import "sync"

// lock is a mutex.
type lock = sync.Mutex
