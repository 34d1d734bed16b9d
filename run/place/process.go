package place

import (
	"runtime"
	"sync"
)

// guests counts the active runs and measurements of this process. A run changes its process while it lasts: which
// threads may preempt which, and how many goroutines may run at once. The first run to begin makes the change and
// the last to end undoes it. Otherwise one run could undo what another still needs. A later run could also take an
// earlier run's workers for threads that should yield.
var guests struct {
	sync.Mutex
	runs, workers int
	undo          func() // undoes yieldToWorkers
	places, ours  int    // GOMAXPROCS before the first run, and the value set by enter
}

// enter prepares the process for this many more workers. The caller calls leave when they have ended.
func enter(workers int) (leave func()) {
	g := &guests
	g.Lock()
	defer g.Unlock()
	if g.runs == 0 {
		g.places = runtime.GOMAXPROCS(0)
		g.ours = g.places
		g.undo = yieldToWorkers()
	}
	g.runs++
	g.workers += workers
	if want := placesFor(g.workers); want > g.ours {
		runtime.GOMAXPROCS(want)
		g.ours = want
	}
	return sync.OnceFunc(func() {
		g.Lock()
		defer g.Unlock()
		g.runs--
		g.workers -= workers
		if g.runs > 0 {
			return
		}
		g.undo()
		if runtime.GOMAXPROCS(0) == g.ours { // otherwise other code has changed the number since
			runtime.GOMAXPROCS(g.places)
		}
	})
}
