package place

import (
	"os"
	"runtime"
	"testing"
)

// imagined returns processors that no machine has and that no other test process claims.
func imagined() []int { return []int{1<<30 + 2*os.Getpid(), 1<<30 + 2*os.Getpid() + 1} }

// claimed returns a Place that has claimed processors by the Binding b.
func claimed(b Binding, processors []int) *Place {
	p := &Place{taken: none}
	p.claim(b, processors)
	return p
}

func (p *Place) bound() bool { return p.processors != nil }

func TestOneRunAtATimeBindsItsWorkers(t *testing.T) {
	on := imagined()
	first := claimed(Alone, on)
	if processor, taken := first.Taken(); taken || !first.bound() {
		t.Fatalf("nobody else is here, and processor %d is taken", processor)
	}
	second := claimed(Alone, on[1:])
	if processor, taken := second.Taken(); second.bound() || !taken || processor != on[1] {
		t.Errorf("processor %d is bound to: bound %v, taken %d", on[1], second.bound(), processor)
	}
	stubborn := claimed(Always, on)
	if !stubborn.bound() {
		t.Error("always is not whoever else has")
	}
	stubborn.Leave()
	if again := claimed(Alone, on); again.bound() {
		t.Error("who had no claim gave one back")
	}
	never := claimed(Never, on)
	if _, taken := never.Taken(); never.bound() || taken {
		t.Error("never is not bound to anything, and claims nothing")
	}
	first.Leave()
	next := claimed(Alone, on)
	if !next.bound() {
		t.Error("the first has gone")
	}
	next.Leave()
	nobody := claimed(Alone, nil)
	if _, taken := nobody.Taken(); nobody.bound() || taken {
		t.Error("no processors to take")
	}
}

// A claim that fails on the second processor leaves no claim on the first.
func TestAClaimIsWholeOrNone(t *testing.T) {
	on := imagined()
	other := claimed(Alone, on[1:])
	both := claimed(Alone, on)
	if processor, taken := both.Taken(); both.bound() || !taken || processor != on[1] {
		t.Fatalf("bound %v, taken %d", both.bound(), processor)
	}
	one := claimed(Alone, on[:1])
	if !one.bound() {
		t.Error("the first processor is still claimed")
	}
	one.Leave()
	other.Leave()
}

func TestOnlyABindingIsTaken(t *testing.T) {
	if _, err := (&Policy{Bind: "sometimes"}).Take(2, 0, 1); err == nil {
		t.Error("bound sometimes")
	}
	before := runtime.GOMAXPROCS(0)
	p, err := (*Policy)(nil).Take(before+1, 0, 1)
	if err != nil || runtime.GOMAXPROCS(0) != before || p.bound() {
		t.Errorf("without a Policy there are %d places, %d before; bound: %v, %v", runtime.GOMAXPROCS(0), before, p.bound(),
			err)
	}
	p.Leave()
}

// The process is the same after the last run as before the first.
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

// A run that begins while another is running does not make the other run's workers yield.
func TestWorkersOfAnotherRunAreLeftAlone(t *testing.T) {
	defer enter(1)()
	thread, done := make(chan int), make(chan struct{})
	go func() {
		lockThread(true)
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
