package run

// monitor is the lock of an executor, and rings bells when it is let go of: a worker woken while the lock is held
// would run straight into it, on the very processor of the holder perhaps, and three switches of threads would come of one.
type monitor struct {
	lock  lock
	bells []*bell
}

func (m *monitor) Lock() { m.lock.Lock() }

// Unlock lets go, and then rings.
func (m *monitor) Unlock() {
	var room [8]*bell
	bells := append(room[:0], m.bells...)
	m.bells = m.bells[:0]
	m.lock.Unlock()
	for _, b := range bells {
		b.ring()
	}
}

// ring has b rung once the lock is free. The caller holds it.
func (m *monitor) ring(b *bell) { m.bells = append(m.bells, b) }
