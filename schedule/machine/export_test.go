package machine

// Taken is the slots that are taken, by the worker that has them.
func (l *Local) Taken() []int { return l.slots.taken }
