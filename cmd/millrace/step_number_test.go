package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/report/live"
)

// Steps count from 1 everywhere. A step, its evaluation and its checkpoint have the same number on the terminal, in
// every file, on both pages and in errors. In a resumed run each step occurs once.
func TestAStepHasOneNumber(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	const often = shortTraining + "--eval-every 2 --out run "
	steps, evaluated := []int{1, 2, 3, 4}, []int{2, 4}
	said := numbersSaid(t, p, often+"--steps 4")
	sameNumbers(t, p, said, steps, evaluated, evaluated)
	// The run resumes from step 2 and ends with step 5. The new steps 3 and 4 replace the old ones.
	said = numbersSaid(t, p, often+"--steps 5 --resume run/checkpoints/step-00000002")
	if !strings.Contains(said, `"resumed":[3]`) {
		t.Errorf("the report marks where the run went on with %s", regexp.MustCompile(`"resumed":\[.*?\]`).FindString(said))
	}
	sameNumbers(t, p, said, append(steps, 5), []int{2, 4, 5}, []int{4, 5})

	out := p.Run(t, strings.Fields("train --model mlp --data digits --profile mlp.json --optimizer sgd --lr 1e30 "+
		"--out nan "+shortTraining), false)
	last, says := lines(t, p, "nan/"+folder.MetricsName), regexp.MustCompile(`: the loss of step 2, micro-batch \d is NaN`)
	if regexp.MustCompile(`worker \d+: \d+[A-Z]+\d+: the loss`).MatchString(out) {
		t.Errorf("an instruction's text counts the step from 0 beside its number:\n%s", out)
	}
	if n := len(last); n != 1 || last[0]["step"] != 1. || !says.MatchString(out) {
		t.Errorf("behind %d lines of metrics, %v, it fails with\n%s", n, last, out)
	}
	events := lines(t, p, "nan/"+folder.EventsName)
	if e := events[len(events)-1]; e["step"] != 1. || !strings.Contains(fmt.Sprint(e["text"]), "the loss of step 2,") {
		t.Errorf("the last event is %v", e)
	}
}

// numbersSaid returns all output of a training, its report and its pages as text.
func numbersSaid(t *testing.T, p *clitest.Program, args string) string {
	t.Helper()
	c := p.Command(t, strings.Fields("train --model mlp --data digits --profile mlp.json --eval-rows 8 --log json "+args))
	log, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	page, err := os.ReadFile(filepath.Join(p.Dir, "run", folder.ReportName))
	if err != nil {
		t.Fatal(err)
	}
	report := p.Run(t, []string{"report", "run"}, false)
	return string(log) + report + string(page) + livePage(t, filepath.Join(p.Dir, "run"))
}

// livePage returns the first data that a run's page receives.
func livePage(t *testing.T, dir string) string {
	t.Helper()
	shelf, err := live.New([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	defer shelf.Close()
	server := httptest.NewServer(shelf.Handler())
	defer server.Close()
	answer, err := http.Get(server.URL + "/stream?show=" + live.IDOf(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	events := bufio.NewScanner(answer.Body)
	for events.Buffer(nil, 16<<20); events.Scan(); {
		if data, is := strings.CutPrefix(events.Text(), "data: "); is && strings.Contains(data, `"held":`) {
			return data
		}
	}
	t.Fatalf("the page is sent nothing: %v", events.Err())
	return ""
}

// sameNumbers compares the output and the run's files with the steps that were taken. `evaluated` are the steps after
// which the run was evaluated. `newest` are the steps of the run's newest part.
func sameNumbers(t *testing.T, p *clitest.Program, said string, steps, evaluated, newest []int) {
	t.Helper()
	n := steps[len(steps)-1]
	list := func(all []int) string { return strings.ReplaceAll(fmt.Sprint(all), " ", ",") }
	says := []string{fmt.Sprintf("Loss: step 1 to %d\n", n), fmt.Sprintf("evaluation after %d steps: ", n),
		fmt.Sprintf(`"losses":{"x":%s,`, list(steps)), fmt.Sprintf(`"eval_losses":{"x":%s,`, list(evaluated)),
		fmt.Sprintf(`"steps":{"x":%s,`, list(steps)),
		fmt.Sprintf(`"steps":{"each":1,"from":0,"step":%s,`, list(steps)),
		fmt.Sprintf(`"held":{"each":1,"from":0,"step":%s,`, list(evaluated)),
		fmt.Sprintf(`"last":{"step":%d,`, n), fmt.Sprintf("step %d/%d  loss ", n, n)}
	for _, k := range newest {
		says = append(says, fmt.Sprintf("after %d steps: evaluation loss", k), fmt.Sprintf(`"step":%d,"evaluation_loss":`, k))
	}
	for _, want := range says {
		if !strings.Contains(said, want) {
			t.Errorf("nothing says %q", want)
		}
	}
	var took, held []int
	for _, line := range lines(t, p, "run/"+folder.MetricsName) {
		if k := int(line["step"].(float64)); line["evaluation_loss"] != nil {
			held = append(held, k)
		} else {
			took = append(took, k)
		}
	}
	if !slices.Equal(took, steps) || !slices.Equal(held, evaluated) {
		t.Errorf("the metrics are of steps %v, and of evaluations behind %v", took, held)
	}
	events := lines(t, p, "run/"+folder.EventsName)
	saved, done := events[len(events)-2], events[len(events)-1]
	if saved["step"] != float64(n) || !strings.HasSuffix(saved["text"].(string), fmt.Sprintf("/step-%08d", n)) ||
		done["step"] != float64(n) || done["text"] != fmt.Sprintf("all %d steps are done", n) {
		t.Errorf("the last events are %v, %v", saved, done)
	}
	if got := boardSteps(t, filepath.Join(p.Dir, "run"), "evaluation/loss"); !slices.Equal(got, newest) {
		t.Errorf("TensorBoard has evaluations behind %v", got)
	}
	chrome, err := os.ReadFile(filepath.Join(p.Dir, "run", "trace.json"))
	last := fmt.Sprintf(`"step":%d,`, n)
	if err != nil || !bytes.Contains(chrome, []byte(last)) || bytes.Contains(chrome, []byte(`"step":0,`)) {
		t.Errorf("the trace for Chrome has no %s, or a step 0: %v", last, err)
	}
}

// lines returns the lines of a file of JSON lines.
func lines(t *testing.T, p *clitest.Program, name string) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var one map[string]any
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, one)
	}
	return all
}

// boardSteps returns the steps with a scalar in a folder's newest file for TensorBoard.
func boardSteps(t *testing.T, dir, tag string) (steps []int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	slices.SortFunc(files, func(a, b string) int {
		x, _ := os.Stat(a)
		y, _ := os.Stat(b)
		return x.ModTime().Compare(y.ModTime())
	})
	rest, err := os.ReadFile(files[len(files)-1])
	if err != nil {
		t.Fatal(err)
	}
	for len(rest) > 0 {
		n := binary.LittleEndian.Uint64(rest)
		record := rest[12 : 12+n]
		rest = rest[16+n:]
		if !bytes.Contains(record, []byte(tag)) {
			continue
		}
		for len(record) > 0 {
			field, kind, k := protowire.ConsumeTag(record)
			if field == 2 { // the step
				step, _ := protowire.ConsumeVarint(record[k:])
				steps = append(steps, int(step))
			}
			record = record[k+protowire.ConsumeFieldValue(field, kind, record[k:]):]
		}
	}
	return steps
}
