//go:build !linux

package run

func (b *bell) hasRung() bool { return len(b.rung) != 0 }
