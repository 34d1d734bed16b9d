package machine

import "github.com/millrace-ml/millrace/schedule"

// Gate tells which workers of a whole Program may start, and is told what has happened. Code that runs a Program uses
// it, and Machine implements it. Methods that return []int return the workers to poll again. The next call reuses that
// slice.
type Gate interface {
	Poll(worker int) Need
	Start(worker int)
	Issued(worker int, done bool) []int
	Done(worker int, in schedule.Instruction) []int
	Arrive(worker int, in schedule.Instruction) []int
	Credit(worker, to int) []int
	Waits() []Need
	Sees(worker int, stage int32) int
}

// Machine is a Process with all workers of a Program, and a Barrier.
type Machine struct {
	*Process
	barrier *Barrier
}

// New makes the Machine of a Program.
func New(p *schedule.Program, o Options) (*Machine, error) {
	s, err := NewProcess(p, nil, o)
	if err != nil {
		return nil, err
	}
	m := &Machine{Process: s, barrier: NewBarrier(p.Workers)}
	m.release(nil)
	return m, nil
}

// Load starts the next Program. It returns an error if a list has not ended or something is open, or if the Program is
// not lowered or has another number of workers.
func (m *Machine) Load(p *schedule.Program) error {
	if err := m.Process.Load(p); err != nil {
		return err
	}
	m.barrier = NewBarrier(p.Workers)
	m.release(nil)
	return nil
}

// Issued implements Gate.
func (m *Machine) Issued(worker int, done bool) []int {
	return m.release(m.Process.Issued(worker, done))
}

// Done implements Gate.
func (m *Machine) Done(worker int, in schedule.Instruction) []int {
	return m.release(m.Process.Done(worker, in))
}

// Limit makes every worker skip the instructions of minibatch n and later.
func (m *Machine) Limit(n int) []int { return m.release(m.Process.Limit(n)) }

// release releases a drain once every worker has reached it.
func (m *Machine) release(wake []int) []int {
	drain, workers, all := m.AtDrain()
	if !all {
		return wake
	}
	if released, err := m.barrier.Reach(drain, workers); err != nil || !released {
		panic(err) // the Barrier counts the same workers as AtDrain
	}
	return m.Release()
}
