package trace_test

import (
	"testing"

	"github.com/millrace-ml/millrace/trace"
)

// TestWhatAModelCallsAccuracyIsAPercentage: 347 of 359 is 96.657 %. A value above 1 cannot be a fraction, so it is
// printed unchanged. Values under other names are never printed as percentages.
func TestWhatAModelCallsAccuracyIsAPercentage(t *testing.T) {
	for want, reported := range map[string]map[string]float64{
		", accuracy 96.66 %":        {"accuracy": 347.0 / 359},
		", accuracy 0.00 %, f1 0.5": {"accuracy": 0, "f1": 0.5},
		", accuracy 96.66":          {"accuracy": 96.66},
		", top5_accuracy 0.9666":    {"top5_accuracy": 0.9666},
	} {
		e := trace.Evaluation{Reported: map[string]*float64{}}
		for name, v := range reported {
			e.Reported[name] = &v
		}
		if got := e.Said(); got != want {
			t.Errorf("%v: got %q, want %q", reported, got, want)
		}
	}
	if got := (trace.Evaluation{Reported: map[string]*float64{"accuracy": nil}}).Said(); got != ", accuracy not finite" {
		t.Errorf("without a value: %q", got)
	}
}
