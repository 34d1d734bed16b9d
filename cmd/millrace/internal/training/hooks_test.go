package training

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/run"
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
