package machine

// Taken returns the number of slots taken on a worker's edges, by receiver.
func (l *Local) Taken() []int { return l.slots.taken }
