//go:build !linux

package memory

// thisHost is always 0, since no process can be read on this system.
func thisHost() uint64 { return 0 }

func thisProcess() uint32 { return 0 }

func letSiblingsRead() {}

// Readable always returns false.
func Readable([]byte) bool { return false }

// Read always fails.
func (*Reader) Read([]byte, uint64) error { return ErrGone }
