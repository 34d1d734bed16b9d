package live

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/internal/browsertest"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/report/metrics"
)

// The page shows the remaining time that the run reports, less the time since the report. It is a range in the same
// form as in the terminal, and includes evaluations and saves. The page shows no time if the run reports none or is
// late, or after the last step. It also shows no time below 3 s, and none if the bounds differ from their geometric
// mean by more than a factor of 1.5.
func TestThePageSaysTheRunsOwnTimeLeft(t *testing.T) {
	root := t.TempDir()
	dir := trained(t, root, "run", false)
	write(t, filepath.Join(dir, folder.JobName), "model: gpt\nsteps: 300\neval_every: 40\n")
	_, server := shelfOf(t, root)
	p := browsertest.Open(t, server.URL+"/#run="+IDOf(dir), browser.View{Width: 1280})
	for i, c := range []struct {
		step  int
		ago   time.Duration
		leftS []float64
		held  bool // the report is from an evaluation
		says  string
	}{
		{step: 121, leftS: []float64{110, 170}, says: "1.5 to 3 min left"}, // 1.8 to 2.8 min; 15 s later 1.6 to 2.6 min
		{step: 122, says: "no"},
		{step: 160, ago: 20 * time.Second, leftS: []float64{44, 54.9}, says: "20 to 35 s left"}, // now 24 to 34.9 s
		{step: 161, leftS: []float64{4e3, 8e3}, says: "1 to 2.5 h left"},                        // 1.1 to 2.2 h
		{step: 200, ago: 20 * time.Second, leftS: []float64{30, 60}, says: "no"},                // now 10 to 40 s
		{step: 200, leftS: []float64{49, 69.9}, held: true, says: "45 to 70 s left"},
		{step: 202, leftS: []float64{2, 3}, says: "no"},
		{step: 300, says: "no"},
		{step: 299, leftS: []float64{500, 500}, says: "8 to 8.5 min left"}, // 8.33 min
	} {
		v := any(metrics.StepValues{Time: time.Now().Add(-c.ago), Step: c.step, Loss: 1, StepS: .3, SamplesPerSecond: 100,
			LeftS: c.leftS})
		if c.held {
			v = metrics.EvaluationValues{Time: time.Now(), Step: c.step, Loss: 1 + float64(i), LeftS: c.leftS}
		}
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		add(t, filepath.Join(dir, folder.MetricsName), string(line)+"\n")
		said := `/step ` + fmt.Sprint(c.step) + ` of 300/.test(document.querySelector("#single .state + span")?.textContent)`
		if c.held {
			said += ` && /45 to/.test(document.querySelector("#single .state + span").textContent)`
		}
		p.Wait(said)
		left := p.Text(`(/(about|at most|[\d.]+ to) [\d.]+ \w+ left/.exec(document.querySelector("#single .state + span").textContent) ?? ["no"])[0]`)
		var holds bool
		p.Eval(fmt.Sprintf(`/^(%s)$/.test(%q)`, c.says, left), &holds)
		if !holds {
			t.Errorf("behind step %d the page says %s; want %s", c.step, left, c.says)
		}
	}
	p.Wait(`/nothing new for/.test(document.querySelector("#single .state + span").textContent)`)
	if got := p.Text(`document.querySelector("#single .state + span").textContent`); strings.Contains(got, "left") {
		t.Errorf("of a step that is late the page says %q", got)
	}
}
