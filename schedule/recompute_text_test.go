package schedule_test

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
)

// The text of a Program includes recompute settings that no run executes. Reading the text gives the same Program.
func TestRecomputeOfPlansInText(t *testing.T) {
	p, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(4, 1), MicroBatches: 4,
		Recompute: []plan.Recompute{plan.Blocks, plan.Selective, plan.KeepInput, plan.Every(3)}})
	if err != nil {
		t.Fatal(err)
	}
	text := p.Text()
	if !strings.Contains(text, "recompute 0:blocks 1:selective 2 3:3\n") {
		t.Errorf("%s", text)
	}
	again, err := schedule.ParseText(strings.NewReader(text))
	if err != nil || again.Text() != text {
		t.Errorf("%v, read as\n%v", err, again)
	}
}
