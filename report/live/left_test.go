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

// The page shows the remaining time that the run reports, which includes evaluations and saves, minus the time since
// the report. It shows none if the run reports none or is late, or after the last step. It also shows none below 3 s,
// or if the bounds differ from their geometric mean by more than a factor of 1.5.
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
		{step: 121, leftS: []float64{110, 170}, says: "about 2 min left"}, // √(110·170) = 137 s
		{step: 122, says: "no"},
		{step: 160, ago: 20 * time.Second, leftS: []float64{40, 52}, says: `about 2\d s left`}, // now 20 to 32 s
		{step: 161, leftS: []float64{4e3, 8e3}, says: "about 1.6 h left"},                      // √(4·8) = 5.66 thousand
		{step: 200, ago: 20 * time.Second, leftS: []float64{30, 60}, says: "no"},               // now 10 to 40 s
		{step: 200, leftS: []float64{50, 70}, held: true, says: `about (59|5\d) s left`},
		{step: 202, leftS: []float64{2, 3}, says: "no"},
		{step: 300, says: "no"},
		{step: 299, leftS: []float64{500, 500}, says: "about 8 min left"},
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
			said += ` && /59|5\d s left/.test(document.querySelector("#single .state + span").textContent)`
		}
		p.Wait(said)
		left := p.Text(`(/about .* left/.exec(document.querySelector("#single .state + span").textContent) ?? ["no"])[0]`)
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
