package avgpipe

import (
	"testing"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
	"github.com/millrace-ml/millrace/lab/reproduce/tabletest"
)

// As in Figure 18, profiling takes no longer than the text says, and traversal takes many times as long.
func TestTuningCostsAsTheTextHasIt(t *testing.T) {
	tabletest.Long(t)
	found := tabletest.Run(t, "avgpipe-fig18")
	if a := found.Agreement(); a.Bounds != (table.Count{Same: 3, Of: 3}) || a.Signs != (table.Count{Same: 3, Of: 3}) {
		t.Errorf("%+v", a)
	}
}

// TestTuningGivesWhatTheTextSays checks Figure 19 for the two smaller trainings. No method's setting is faster than the
// traversal's. For one of the trainings, each of the two guidelines chooses a much slower setting than the traversal.
func TestTuningGivesWhatTheTextSays(t *testing.T) {
	trainings, err := ofTrainings[tuned](&table.Table{}, "fig19")
	if err != nil {
		t.Fatal(err)
	}
	worst := map[string]float64{}
	for _, w := range trainings[1:] {
		o, err := w.in(t.Context(), world{})
		if err != nil {
			t.Fatal(err)
		}
		for what, x := range map[string]float64{"printed": o.over(o.printed), "adjusted": o.over(o.adjusted),
			"simulator": o.over(o.simulator), "max-num": o.maxNum, "max-size": o.maxSize} {
			if worst[what] = max(worst[what], x); x < .995 {
				t.Errorf("%s, %s: %.3f of the shortest", w.Training.Name, what, x)
			}
		}
	}
	if worst["simulator"] > 1.05 || worst["adjusted"] > 1.5 || worst["max-num"] < 1.5 || worst["max-size"] < 1.5 {
		t.Errorf("the worst of each method over the shortest: %v", worst)
	}
}
