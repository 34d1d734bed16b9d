package training

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/pace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// If a step cannot be written for the live page, there is one warning, and the run goes on.
func TestAStepThatCannotBeWrittenFailsNoRun(t *testing.T) {
	var events bytes.Buffer
	w := &runDir{
		Prepared: &prepare.Prepared{Job: &job.Job{Output: job.Output{Folder: filepath.Join(t.TempDir(), "gone")}},
			Plan: &plan.Plan{}}, events: metrics.NewEventLog(&events),
		progress: newProgress(nil, &run.Config{Train: run.Training{Steps: 10}}),
		tracing:  tracing{watched: func() bool { return true }, begun: time.Now()},
	}
	hooks := w.hooks()
	for range 2 {
		hooks.OnTrace(tracetest.TwoStages().Timeline())
	}
	if w.failed != nil {
		t.Errorf("the run fails: %v", w.failed)
	}
	if said := events.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, `"kind":"warning"`) ||
		!strings.Contains(said, "pages do not show the step as it happens") {
		t.Errorf("it says %q", said)
	}
}

// An event that names a straggler has the number of the step whose metrics name it first.
func TestAStragglerIsNamedAtItsStep(t *testing.T) {
	var events, steps bytes.Buffer
	w := &runDir{
		Prepared: &prepare.Prepared{Job: &job.Job{}, Plan: &plan.Plan{MicroBatches: 1, MicroBatch: 1}},
		events:   metrics.NewEventLog(&events), sinks: metrics.Sinks{metrics.NewJSONL(&steps)},
		progress: newProgress(nil, &run.Config{Train: run.Training{Steps: 10}}),
	}
	hooks := w.hooks()
	hooks.OnStep(run.StepReport{Step: 6})
	hooks.OnPace(run.Pace{Change: pace.Change{Worker: 1, From: 0, To: 7, Times: 2, Others: 1}, Text: "worker 1 is slow"})
	hooks.OnStep(run.StepReport{Step: 7})
	if w.failed != nil {
		t.Fatal(w.failed)
	}
	var event metrics.Event
	if err := json.Unmarshal(events.Bytes(), &event); err != nil || event.Step != 8 {
		t.Errorf("the event is %s, %v; want step 8", events.String(), err)
	}
	for line := range strings.Lines(steps.String()) {
		if named := strings.Contains(line, "stragglers"); named != strings.Contains(line, `"step":8,`) {
			t.Errorf("the metrics say %s", line)
		}
	}
}
