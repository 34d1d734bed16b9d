package report

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// TestReferenceIsReportedOverTraining: every sink and both reports show how far the reference of elastic averaging is
// from the average. Runs without a reference have no such value.
func TestReferenceIsReportedOverTraining(t *testing.T) {
	for _, c := range []struct {
		name  string
		apart *float64
	}{{"elastic", new(2.5e-8)}, {"plain", nil}} {
		told := c.apart != nil
		var lines, events bytes.Buffer
		now := time.Unix(1_700_000_000, 0)
		tb, err := metrics.NewTensorBoard(&events, now)
		if err != nil {
			t.Fatal(err)
		}
		p := metrics.NewPrometheus(nil, nil)
		sinks := metrics.Sinks{metrics.NewJSONL(&lines), tb, p}
		said := metrics.EvaluationValues{Time: now, Loss: 1, Apart: c.apart}
		if err := errors.Join(sinks.Evaluation(said), sinks.Close()); err != nil {
			t.Fatal(err)
		}
		scrape := httptest.NewRecorder()
		p.Handler().ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
		in := sample(tracetest.TwoStages())
		in.Evaluations = []trace.Evaluation{
			{Step: 3, Loss: 1, Samples: 8}, {Step: 7, Loss: 1, Samples: 8, Apart: c.apart},
		}
		var screen bytes.Buffer
		if err := Terminal(&screen, in); err != nil {
			t.Fatal(err)
		}
		page := dataOf(t, drawPage(t, in))
		for what, got := range map[string]bool{
			"JSON lines":  strings.Contains(lines.String(), `"reference_apart":2.5e-`),
			"TensorBoard": strings.Contains(events.String(), "evaluation/reference_apart"),
			"Prometheus":  strings.Contains(scrape.Body.String(), "millrace_reference_apart_ratio 2.5e-08"),
			"terminal":    strings.Contains(screen.String(), "reference off its average ▁ at most 2.5e-08"),
			"page":        len(page.Apart.X) == 1 && page.Apart.X[0] == 8 && page.Apart.Y[0] == 2.5e-8,
		} {
			if got != told {
				t.Errorf("%s: %s tells of the reference: %v, want %v", c.name, what, got, told)
			}
		}
	}
}

// A model's further outputs are in every sink and in both reports. A value that is not finite is null in JSON lines,
// named by the terminal, and left out elsewhere.
func TestWhatAModelReportsIsShown(t *testing.T) {
	var lines, events bytes.Buffer
	now := time.Unix(1_700_000_000, 0)
	tb, err := metrics.NewTensorBoard(&events, now)
	if err != nil {
		t.Fatal(err)
	}
	p := metrics.NewPrometheus(nil, nil)
	sinks := metrics.Sinks{metrics.NewJSONL(&lines), tb, p}
	numbers := map[string]*float64{"f1": new(0.25), "odd": nil}
	if err := errors.Join(sinks.Evaluation(metrics.EvaluationValues{Time: now, Loss: 1, Reported: numbers}),
		sinks.Close()); err != nil {
		t.Fatal(err)
	}
	scrape := httptest.NewRecorder()
	p.Handler().ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	in := sample(tracetest.TwoStages())
	in.Evaluations = []trace.Evaluation{{Step: 3, Loss: 1}, {Step: 7, Loss: 1, Reported: numbers}}
	var screen bytes.Buffer
	if err := Terminal(&screen, in); err != nil {
		t.Fatal(err)
	}
	page := dataOf(t, drawPage(t, in))
	for what, good := range map[string]bool{
		"JSON lines": strings.Contains(lines.String(), `"evaluation_reported":{"f1":0.25,"odd":null}`) &&
			!strings.Contains(lines.String(), "accuracy"),
		"TensorBoard": strings.Contains(events.String(), "evaluation/f1") && !strings.Contains(events.String(), "odd") &&
			!strings.Contains(events.String(), "accuracy"),
		"Prometheus": strings.Contains(scrape.Body.String(), `millrace_evaluation_reported{name="f1"} 0.25`) &&
			!strings.Contains(scrape.Body.String(), "odd") && !strings.Contains(scrape.Body.String(), "accuracy"),
		"terminal": strings.Contains(screen.String(), "loss 1.0000, f1 0.25, odd not finite"),
		"page": len(page.Reported) == 1 && page.Reported["f1"].X[0] == 8 && page.Reported["f1"].Y[0] == 0.25 &&
			len(page.Accuracies.X) == 0,
	} {
		if !good {
			t.Errorf("%s: %s %s", what, lines.String(), screen.String())
		}
	}
}
