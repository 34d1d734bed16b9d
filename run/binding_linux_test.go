package run

import (
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/plan"
)

// imagined are processors that no machine has, and no other process that runs these tests claims.
func imagined() []int { return []int{1<<30 + 2*os.Getpid(), 1<<30 + 2*os.Getpid() + 1} }

func TestOneRunAtATimeBindsItsWorkers(t *testing.T) {
	on := imagined()
	first, leaveFirst, taken := BindAlone.take(&seats{free: on})
	if first == nil || taken != none {
		t.Fatalf("nobody else is here, and processor %d is taken", taken)
	}
	if second, _, taken := BindAlone.take(&seats{free: on[1:]}); second != nil || taken != on[1] {
		t.Errorf("processor %d is bound to: got seats %v, taken %d", on[1], second != nil, taken)
	}
	stubborn, leaveStubborn, _ := BindAlways.take(&seats{free: on})
	if stubborn == nil {
		t.Error("always is not whoever else has")
	}
	leaveStubborn()
	if again, _, _ := BindAlone.take(&seats{free: on}); again != nil {
		t.Error("who had no claim gave one back")
	}
	if never, _, taken := BindNever.take(&seats{free: on}); never != nil || taken != none {
		t.Error("never is not bound to anything, and claims nothing")
	}
	leaveFirst()
	next, leave, _ := BindAlone.take(&seats{free: on})
	if next == nil {
		t.Error("the first has gone")
	}
	leave()
	if nobody, _, taken := BindAlone.take(nil); nobody != nil || taken != none {
		t.Error("no seats to take")
	}
}

// A claim on the second processor leaves none on the first behind.
func TestAClaimIsWholeOrNone(t *testing.T) {
	on := imagined()
	_, leave, _ := BindAlone.take(&seats{free: on[1:]})
	if both, _, taken := BindAlone.take(&seats{free: on}); both != nil || taken != on[1] {
		t.Fatalf("got seats %v, taken %d", both != nil, taken)
	}
	if one, leave, _ := BindAlone.take(&seats{free: on[:1]}); one == nil {
		t.Error("the first processor is still claimed")
	} else {
		leave()
	}
	leave()
}

// A run beside another that has bound its workers says so, and trains.
func TestARunSaysThatProcessorsAreTaken(t *testing.T) {
	here := allowedCores()
	if leave, ok := claimProcessor(here[len(here)-1]); ok { // or somebody has already
		defer leave()
	}
	m := build(t, "mlp", map[string]any{"inputs": 8, "hidden": []int{6}, "classes": 3})
	pl := planOf(m, nil, 1, len(here), "dp")
	pl.Stages = []plan.Stage{{LastLayer: len(m.Layers) - 1, Devices: make([]int, len(here))}}
	for k := range here {
		pl.Stages[0].Devices[k] = k
	}
	c := basic(t, ref.New(), m, pl, 3, 2)
	taken := none
	c.Hooks.OnTaken = func(processor int) { taken = processor }
	train(t, c)
	if told := slices.Contains(here, taken); told != (len(here) > 1) { // one processor leaves nothing to choose
		t.Errorf("told that processor %d is taken, of %v", taken, here)
	}
	c.Bind, taken = BindNever, none
	train(t, c)
	if taken != none {
		t.Errorf("who binds to none is told that %d is taken", taken)
	}
	c.Bind = "sometimes"
	if _, err := Train(t.Context(), c); err == nil {
		t.Error("bound sometimes")
	}
}

// What runs change of their process they undo, the last of them.
func TestRunsLeaveTheirProcessAsItWas(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	runtime.GOMAXPROCS(1)
	first := enter(2)
	if want := max(1, placesFor(2)); runtime.GOMAXPROCS(0) != want {
		t.Errorf("2 workers have %d places; want %d", runtime.GOMAXPROCS(0), want)
	}
	second := enter(3)
	if want := max(1, placesFor(5)); runtime.GOMAXPROCS(0) != want {
		t.Errorf("5 workers have %d places; want %d", runtime.GOMAXPROCS(0), want)
	}
	first()
	first()
	if want := max(1, placesFor(5)); runtime.GOMAXPROCS(0) != want {
		t.Errorf("one of two has ended, and there are %d places; want %d", runtime.GOMAXPROCS(0), want)
	}
	second()
	if runtime.GOMAXPROCS(0) != 1 {
		t.Errorf("%d places are left; there was 1", runtime.GOMAXPROCS(0))
	}
	third := enter(1)
	runtime.GOMAXPROCS(77)
	third()
	if runtime.GOMAXPROCS(0) != 77 {
		t.Errorf("somebody asked for 77 places, and there are %d", runtime.GOMAXPROCS(0))
	}
}

// A run that begins while another goes on does not take its workers for threads that give way.
func TestWorkersOfAnotherRunAreLeftAlone(t *testing.T) {
	defer enter(1)()
	thread, done := make(chan int), make(chan struct{})
	go func() {
		becomeWorker()
		thread <- threadID()
		<-done
	}()
	worker := <-thread
	defer close(done)
	second := enter(1)
	if got := policyOf(worker); got != schedNormal {
		t.Errorf("when another run has begun, a worker has policy %d; want %d", got, schedNormal)
	}
	second()
	if got := policyOf(worker); got != schedNormal {
		t.Errorf("when another run has ended, a worker has policy %d; want %d", got, schedNormal)
	}
}
