package place

import (
	"runtime"
	"sync"
)

// guests are the runs, and measurements, that this process does at the moment. A run changes
// its process as long as it lasts: which threads may preempt which, and how many goroutines may
// run at once. The first to begin changes it and the last to end changes it back: in between,
// what one run undid another would miss, and one that began later would take the workers of those
// before it for threads that should give way.
var guests struct {
	sync.Mutex
	runs, workers int
	undo          func() // of yieldToWorkers
	places, ours  int    // GOMAXPROCS before the first run, and what we made of it
}

// enter prepares the process for that many more workers; the caller calls leave when they are gone.
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
		if runtime.GOMAXPROCS(0) == g.ours { // or else somebody has set it since, who knows why
			runtime.GOMAXPROCS(g.places)
		}
	})
}
