//go:build !linux

package place

// Elsewhere the operating system places threads.
func allowed() []int { return nil }

func pinTo(int, int) {}

func threadID() int { return 0 }
