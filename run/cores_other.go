//go:build !linux

package run

// Elsewhere the operating system places threads.
func allowedCores() []int { return nil }

func pinTo(int, int) {}

func threadID() int { return 0 }
