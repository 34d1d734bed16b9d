package tight

import (
	"context"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/plan"
)

func TestResultsAreCounted(t *testing.T) {
	c, err := Ask(context.Background(), "s2vt", "dapple-b", 64, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	r := &Results{Head: record.Begin("bound", "a test"), Batch: 64, Cases: []Case{c}}
	if r.End(); r.Recount() != nil || r.MeanGap != c.Gap || c.Gap < -plan.SameTime {
		t.Errorf("%+v: %v", r, r.Recount())
	}
	if r.MeanGap++; r.Recount() == nil {
		t.Error("a wrong mean is not refused")
	}
}
