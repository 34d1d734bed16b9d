package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/trace"
)

// records returns the log records in a program's output, each of which must have a rank and a host. `other` is the rest
// of the output.
func records(t *testing.T, text string) (all []map[string]any, other string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var r map[string]any
		if json.Unmarshal([]byte(line), &r) != nil {
			other += line
			continue
		}
		if r["host"] == nil || r["rank"] == nil || r["msg"] == nil {
			t.Errorf("a record without rank or host: %s", line)
		}
		all = append(all, r)
	}
	return all, other
}

// A run on two hosts leaves consistent files. These are records of all processes, a Timeline on one clock with the
// places of workers, and metrics of each worker. The report and the viewer's file show the hosts.
func TestHostsLeaveOnePicture(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	path, _ := otherHosts(t)
	const flags = launchedFlags + "--split 1 --schedule 1f1b --clip 0.5 --optimizer adam --steps 30 --out seen"
	code, out := by(t, p, strings.Fields(flags), []string{path}, "SELF", "--log", "json", "launch", "--hosts",
		"127.0.0.2,u@127.0.0.3", "--")
	if code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	all, report := records(t, out)
	has := func(rank float64, message string, step any) bool {
		return slices.ContainsFunc(all, func(r map[string]any) bool {
			return r["rank"] == rank && strings.HasPrefix(r["msg"].(string), message) && r["step"] == step
		})
	}
	if !has(0, "step 30/30  loss ", 30.0) || !has(1, "the run begins", nil) || !has(1, "the run has ended", 30.0) {
		t.Errorf("records %v", all)
	}
	for _, says := range []string{"  127.0.0.2     0  worker 0 (stage 0)\n",
		"  127.0.0.3     1  worker 1 (stage 1)\n",
		"host 127.0.0.3, rank 1\n", "Times of different processes agree within ±"} {
		if !strings.Contains(report, says) {
			t.Errorf("the report says nothing about %q:\n%s", says, report)
		}
	}
	tl, err := trace.ReadFile(filepath.Join(p.Dir, "seen", "timeline.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if len(tl.Processes) != 2 || tl.Processes[1].Host != "127.0.0.3" || tl.ErrorS() <= 0 || tl.ErrorS() > 0.1 {
		t.Errorf("it is of %+v", tl.Processes)
	}
	if again := p.Run(t, strings.Fields("report seen"), false); !strings.Contains(again, "host 127.0.0.3, rank 1\n") {
		t.Errorf("another time the report is\n%s", again)
	}
	for name, says := range map[string]string{"trace.json": `"rank 1 on host 127.0.0.3"`,
		"report.html": "<h3>host 127.0.0.2, rank 0</h3>", "trace.perfetto": "rank 0 on host 127.0.0.2"} {
		if text, err := os.ReadFile(filepath.Join(p.Dir, "seen", name)); err != nil || !strings.Contains(string(text), says) {
			t.Errorf("%s says nothing about %q: %v", name, says, err)
		}
	}
	checkValues(t, p)
}

// checkValues checks the metrics of the run's last step.
func checkValues(t *testing.T, p *clitest.Program) {
	t.Helper()
	f, err := os.Open(filepath.Join(p.Dir, "seen", "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var last struct {
		Samples       int64     `json:"samples"`
		Norm          float64   `json:"gradient_norm"`
		BusyS         []float64 `json:"busy_s"`
		PeakBytes     []int64   `json:"peak_bytes"`
		LiveBytes     []int64   `json:"live_bytes"`
		SentBytes     []int64   `json:"sent_bytes"`
		ReceivedBytes []int64   `json:"received_bytes"`
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.Contains(lines.Text(), `"busy_s"`) {
			if err := json.Unmarshal(lines.Bytes(), &last); err != nil {
				t.Fatal(err)
			}
		}
	}
	if last.Samples != 30*16 || last.Norm <= 0 || len(last.BusyS) != 2 || slices.Min(last.BusyS) <= 0 ||
		slices.Min(last.PeakBytes) <= 0 || slices.Min(last.LiveBytes) <= 0 || last.SentBytes[0] <= 0 ||
		last.SentBytes[0] != last.ReceivedBytes[1] || last.SentBytes[1] != last.ReceivedBytes[0] {
		t.Errorf("the last step left %+v", last)
	}
}
