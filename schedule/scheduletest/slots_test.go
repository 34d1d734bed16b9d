package scheduletest

import (
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
)

func twoStages(t *testing.T, lists string) *schedule.Program {
	t.Helper()
	p, err := schedule.ParseText(strings.NewReader("millrace program 1\nname mine\nstages 2\nworkers 2\n" +
		"micro_batches 2\nperiod 1\nrepeat 1\nweights sync\nreplication split\nplace p0/0: 0\nplace p0/1: 1\nbody\n" +
		lists))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestDraw: 1F1B of two micro-batches on two stages, by hand. A backward takes two slots and a transfer one.
func TestDraw(t *testing.T) {
	p := twoStages(t, "0: 0F0 0F1 0B0 0B1\n1: 1F0 1B0 1F1 1B1\n")
	slots := UnitSlots
	slots.Transfer = 1
	d, err := Draw(p, slots)
	if err != nil {
		t.Fatal(err)
	}
	want := "0: 0F0 0F1 .   .   .   .   0B0 === .   0B1 ===\n" + // the messages of 1B0 and 1B1 arrive at 6 and 9
		"1: .   .   1F0 1B0 === 1F1 1B1 === .   .   .\n"
	if d.String() != want {
		t.Errorf("got\n%swant\n%s", d, want)
	}
	if d.Slots != 11 || d.Busy != 12 || math.Abs(d.Bubble()-10.0/22) > 1e-12 {
		t.Errorf("%d slots, %d busy, bubble %v", d.Slots, d.Busy, d.Bubble())
	}
}

// TestDrawRefuses: a Program that cannot be played is refused with the reason.
func TestDrawRefuses(t *testing.T) {
	blocked := twoStages(t, "0: 0F0 0B0 0F1 0B1\n1: 1F0 1F1 1B0 1B1\n")
	if _, err := Draw(blocked, UnitSlots); err == nil || !strings.Contains(err.Error(), "it would block for ever") {
		t.Errorf("a deadlock: %v", err)
	}
	if _, err := Draw(blocked, Slots{F: -1}); err == nil || !strings.Contains(err.Error(), "-1 slots") {
		t.Errorf("a negative slot: %v", err)
	}
}
