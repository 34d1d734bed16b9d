package bound

import (
	"context"
	"math/rand/v2"
	"testing"
)

// TestABoundThatIsStoppedIsABound: with a cancelled context only the cheap bounds remain, which are at most the full
// bounds. With a small budget the result lies between the cheap and the full bound.
func TestABoundThatIsStoppedIsABound(t *testing.T) {
	stopped, stop := context.WithCancel(context.Background())
	stop()
	r := rand.New(rand.NewPCG(3, 9))
	less := 0
	for range 40 {
		p, c := randomWorld(r)
		kind := Kind{Workers: len(c.Devices), Batch: 16, Sizes: []int{1, 2, 4, 8}}
		whole, short := Prove(p, c, kind), Proofs(stopped, p, c, kind)
		if len(short) == 0 || short[0].StepS > whole.StepS || short[0].StepS <= 0 {
			t.Fatalf("stopped: %+v, whole: %+v", short, whole)
		}
		if short[0].Term == Way {
			t.Errorf("a proof that was stopped is by %s", short[0].Term)
		}
		if short[0].StepS < whole.StepS {
			less++
		}
		b := newBounder(p, c, kind, 2, false)
		b.simple()
		simple := b.proof.StepS
		b.effort.allowed = 2000
		b.refine(whole.StepS * 4)
		some := b.proof.StepS
		b.effort = endless()
		b.refine(whole.StepS * 4)
		if some < simple || some > b.proof.StepS {
			t.Errorf("%v simply, %v with little to spend, %v with all", simple, some, b.proof.StepS)
		}
	}
	if less < 5 {
		t.Errorf("only %d of 40 bounds are more when nobody stops them", less)
	}
}
