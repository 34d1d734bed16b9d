package run

func (b *bell) hasRung() bool { return b.rung.Load() != 0 }
