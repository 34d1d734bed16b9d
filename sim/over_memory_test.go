package sim

import (
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// TestOverIsTheFirstInstructionBeyondTheMemory uses GPipe's order, where each forward holds one byte more. Weights
// always count, and so do received messages.
func TestOverIsTheFirstInstructionBeyondTheMemory(t *testing.T) {
	p, err := family.Generate("afab", schedule.Settings{Placement: straight(2), MicroBatches: 4, Repeat: 2})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	c := Uniform(2, 1, 2, 0.1)
	for i := range c.Stages {
		c.Stages[i][0].FixedBytes = 10
	}
	c.Stages[0][0].ActivationBytes, c.Stages[1][0].InputBytes = 5, 5
	forward := func(stage, micro int) schedule.Instruction {
		return schedule.Instruction{Kind: schedule.F, Stage: int32(stage), Micro: int32(micro)}
	}
	received := forward(1, 0)
	received.Kind = schedule.RF
	for _, k := range []struct {
		most [2]int64
		want *Over
	}{
		{[2]int64{100, 100}, nil},
		{[2]int64{0, 0}, nil},
		{[2]int64{9, 100}, &Over{Worker: 0, Throughout: true, Bytes: 10}},
		{[2]int64{100, 14}, &Over{Worker: 1, Instruction: received, Bytes: 15}},
		// three micro-batches of one byte, the output of 5 that the third sends, and the fixed 10
		{[2]int64{17, 100}, &Over{Worker: 0, Instruction: forward(0, 2), Bytes: 18}},
	} {
		_, sum, err := Run(p, c, Options{MemoryBytes: func(w int) int64 { return k.most[w] }})
		if err != nil {
			t.Fatal(err)
		}
		if (sum.Over == nil) != (k.want == nil) || k.want != nil && *sum.Over != *k.want {
			t.Errorf("with %v bytes: %+v, want %+v", k.most, sum.Over, k.want)
		}
	}
}
