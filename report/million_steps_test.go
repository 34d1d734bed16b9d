package report

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/trace"
)

// TestThePageOfAMillionSteps: the page is below 2 MB. Its tiles cover all steps after the first ten. Its curves have
// the first, the last, the lowest and the highest loss, and it counts the steps beyond the axis.
func TestThePageOfAMillionSteps(t *testing.T) {
	const n = 1_000_000
	in := Inputs{Title: "long", Batch: 32}
	for step := range n {
		s := .1 + .01*math.Sin(float64(step))
		if step%1000 == 7 {
			s = 3
		}
		in.Took = append(in.Took, StepTook{Step: step, S: s, BusyS: []float64{.08, .04}})
		in.Losses = append(in.Losses, trace.Loss{Step: step, Value: 2 / (1 + float64(step)/1000)})
	}
	in.Losses[123_456].Value, in.Losses[654_321].Value = 77, -5
	var b strings.Builder
	if err := HTML(&b, in); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 2<<20 {
		t.Errorf("the page has %d bytes", b.Len())
	}
	filled, err := in.filled()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(pageDataOf(filled))
	if err != nil {
		t.Fatal(err)
	}
	var d pageData
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]int{"losses": len(d.Losses.X), "means": len(d.LossMeans.X), "steps": len(d.Steps.X)} {
		if c > mostPoints || c < mostPoints/8 {
			t.Errorf("%d %s", c, what)
		}
	}
	at := func(step int, want float64) { // steps count from 0
		if i := slices.Index(d.Losses.X, step+1); i < 0 || d.Losses.Y[i] != want {
			t.Errorf("the loss of step %d is not drawn", step)
		}
	}
	at(0, 2)
	at(123_456, 77)
	at(654_321, -5)
	at(n-1, 2/(1+float64(n-1)/1000))
	if d.Steps.X[0] != 1 || d.Steps.X[len(d.Steps.X)-1] != n || d.Steps.Beyond != n/1000 {
		t.Errorf("steps %d to %d, and %d are longer than the axis", d.Steps.X[0], d.Steps.X[len(d.Steps.X)-1], d.Steps.Beyond)
	}
	sum := 0.0
	for _, y := range d.LossMeans.Y {
		sum += y / float64(len(d.LossMeans.Y))
	}
	mean := 0.0
	for _, l := range in.Losses {
		mean += l.Value / n
	}
	if math.Abs(sum-mean) > 1e-6 {
		t.Errorf("the means have the mean %v, all losses %v", sum, mean)
	}
	for _, want := range []string{"100 ms", "40.0 %", "medians over 999,990 steps, 11 to 1,000,000"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}
