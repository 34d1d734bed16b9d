package machine_test

import (
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// TestNothingIsAllocatedForAnInstruction: lists eight times as long need no more allocations, except a few when buffers
// between workers grow. This matters because a Process is driven under a lock that all of its workers share.
func TestNothingIsAllocatedForAnInstruction(t *testing.T) {
	for _, o := range []machine.Options{{}, {Ahead: 2}, {Slots: 2}, {Cores: machine.Share(2), Slots: 1}} {
		allocs := func(repeat int) (count float64, instructions int64) {
			p := generated(t, "1f1b", schedule.Settings{Placement: schedule.Replicated(4, 1), MicroBatches: 8,
				Repeat: repeat})
			count = testing.AllocsPerRun(3, func() {
				if m, err := machine.Play(p, o); err != nil || !m.Ended() {
					t.Fatalf("%+v: %v", o, err)
				}
			})
			return count, p.Instructions()
		}
		few, short := allocs(4)
		many, long := allocs(32)
		if many-few > float64(long-short)/100 {
			t.Errorf("%+v: %v allocations of %d instructions, %v of %d", o, few, short, many, long)
		}
	}
}
