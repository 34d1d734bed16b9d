//go:build !linux

package place

// allowed returns nil, because here the operating system places threads.
func allowed() []int { return nil }

func pinTo(int, int) {}

func threadID() int { return 0 }
