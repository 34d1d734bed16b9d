package bench

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/engine"
)

// A beat is paceCalls products of two square float32 matrices of paceSide on every thread:
// 3.2 GFLOP, some 15 ms of a core of 2025. The matrices fit a core's own cache, so a beat
// shows the clock, its throttling and what a hypervisor took, and not memory.
const (
	paceSide  = 512
	paceCalls = 12
	// paceOwner is where the owners of memory begin, downwards, that no worker has.
	paceOwner = 1022
)

// Pace tells how fast a machine computes at the moment. Machines that others use too drift by
// several percent within seconds; a fixed loop, timed next to what is measured, says by how
// much. It computes only while a beat is taken.
type Pace struct {
	threads []*paceThread
	ended   sync.WaitGroup
}

type paceThread struct {
	begin chan struct{}
	took  chan paceAnswer
}

type paceAnswer struct {
	seconds float64
	err     error
}

// StartPace opens a device of e, with so many intra-operator threads, on each of workers locked
// threads of its own. Close ends them.
func StartPace(e engine.Engine, workers, threads int) (*Pace, error) {
	return startPace(e, workers, threads, paceSide)
}

func startPace(e engine.Engine, workers, threads int, side int64) (*Pace, error) {
	p := &Pace{}
	for i := range workers {
		t := &paceThread{begin: make(chan struct{}), took: make(chan paceAnswer)}
		p.threads = append(p.threads, t)
		p.ended.Go(func() {
			runtime.LockOSThread() // for good: the engine's state of a thread ends with it
			t.serve(e, paceOwner-i, threads, side)
		})
	}
	if _, err := p.Beat(); err != nil { // the first one loads code
		p.Close()
		return nil, err
	}
	return p, nil
}

// serve answers every begin with the time of a loop, until begin is closed.
func (t *paceThread) serve(e engine.Engine, owner, threads int, side int64) {
	d, err := e.Open(owner, threads)
	if err != nil {
		for range t.begin {
			t.took <- paceAnswer{err: fmt.Errorf("bench: pace: %w", err)}
		}
		return
	}
	defer d.Close()
	x, err := d.Full(e.Float(), []int64{side, side}, 0.5)
	for range t.begin {
		start := time.Now()
		for range paceCalls {
			if err != nil {
				break
			}
			m := d.Begin()
			_, err = d.Call("millrace::linear", x, x, nil)
			d.End(m)
		}
		if err != nil {
			err = fmt.Errorf("bench: pace: %w", err)
		}
		t.took <- paceAnswer{time.Since(start).Seconds(), err}
	}
}

// Beat runs the loop on all threads at once and returns the mean of their times in seconds.
func (p *Pace) Beat() (float64, error) {
	for _, t := range p.threads {
		t.begin <- struct{}{}
	}
	var sum float64
	var failed error
	for _, t := range p.threads {
		a := <-t.took
		sum += a.seconds
		if a.err != nil {
			failed = a.err
		}
	}
	return sum / float64(len(p.threads)), failed
}

// Close ends the threads. No beat may be under way.
func (p *Pace) Close() {
	for _, t := range p.threads {
		close(t.begin)
	}
	p.ended.Wait()
}

// AtPace is the median of what steps would have taken at the pace of reference: beats[i] and
// beats[i+1] are the beats before and after steps[i], all in seconds. It does away with the
// part of an error that is the machine's drift between two measurements. It is 0 where steps
// and beats do not match or one is not above 0: then nothing is known.
func AtPace(steps, beats []float64, reference float64) float64 {
	if len(steps) == 0 || len(beats) != len(steps)+1 || !(reference > 0) || !(slices.Min(beats) > 0) {
		return 0
	}
	var so []float64
	for i, s := range steps {
		so = append(so, s*2*reference/(beats[i]+beats[i+1]))
	}
	return Median(so)
}
