package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// onHosts returns a run of four stages in four processes on two hosts. The run claims that clocks agree within withinS
// seconds; their real error is skewS seconds.
func onHosts(withinS, skewS float64) Inputs {
	p := tracetest.FourStages()
	p.Source, p.Steps, p.TransferS = "run", 6, 0.0002
	t := p.Timeline()
	tracetest.OnTwoHosts(t, withinS, skewS)
	t.Stragglers = []trace.Straggler{{Worker: 3, From: 1, To: 5, Times: 1.62, Others: 1.02, LastTimes: 2.5}}
	pl := &plan.Plan{Model: "gpt", Schedule: "1f1b", MicroBatch: 4, MicroBatches: 8, Weights: "sync"}
	for i := range 4 {
		pl.Stages = append(pl.Stages, plan.Stage{FirstLayer: i, LastLayer: i, Devices: []int{i}, Warmup: 4 - i})
	}
	return Inputs{Title: "hosts", Plan: pl, Measured: t}
}

func TestWorkersAreShownByHost(t *testing.T) {
	for _, c := range []struct {
		withinS, skewS float64
		says           []string
		not            string
	}{
		{9e-4, 0, []string{"Times of different processes agree within ±900 µs; of what is nearer no"}, "before they left"},
		{9e-4, -5e-4, []string{"agree within ±900 µs", "messages came before they left, which is within that"},
			"a clock was set"},
		{1e-4, -5e-4, []string{"messages came before they left by more than that, up to 200 µs more: a clock was set"},
			"which is within"},
	} {
		in := onHosts(c.withinS, c.skewS)
		var terminal, page bytes.Buffer
		if err := Terminal(&terminal, in); err != nil {
			t.Fatal(err)
		}
		if err := HTML(&page, in); err != nil {
			t.Fatal(err)
		}
		flat := strings.Join(strings.Fields(terminal.String()), " ")
		for _, want := range append(c.says, "a 0 worker 0 (stage 0) 1 worker 1 (stage 1) "+
			"b 2 worker 2",
			"host b, ranks 2–3 2 ", "worker 3 (rank 3 on host b; stage 3) in steps 2 to 6: at first 1.62 times as long") {
			if !strings.Contains(flat, want) {
				t.Errorf("clocks %v s off: the terminal says nothing about %q:\n%s", c.skewS, want, terminal.String())
			}
		}
		for _, want := range append(c.says, `"groups":[{"title":"host a, ranks 0–1","workers":[0,1]},{"title":"host b, `+
			`ranks 2–3","workers":[2,3]}]`, "<h3>host a, ranks 0–1</h3>", `"where":["rank 0 on host a",`,
			"<td>worker 2 (stage 2)</td>",
			"began 1.50 s before rank 0&#39;s, known within", "1.62 times as long") {
			if !strings.Contains(page.String(), want) {
				t.Errorf("clocks %v s off: the page says nothing about %q", c.skewS, want)
			}
		}
		if strings.Contains(flat, c.not) || strings.Contains(page.String(), c.not) {
			t.Errorf("clocks %v s off: it says %q", c.skewS, c.not)
		}
	}
}

// TestADriftIsTold: a clock's drift is shown if it changes the time by more than the error.
func TestADriftIsTold(t *testing.T) {
	in := onHosts(2e-4, 0)
	_, end := in.Measured.Extent()
	for drift, says := range map[float64]string{
		0.9e-4 / end: "began 1.50 s behind rank 0's, known within ±100 µs",
		1.1e-4 / end: "began 1.50 s behind rank 0's, loses 30.5 µs a second, known within ±100 µs",
		-2e-4 / end:  "began 1.50 s behind rank 0's, gains 55.4 µs a second, known within ±100 µs",
	} {
		if got := clockOf(in.Measured, &trace.Process{OffsetS: 1.5, Drift: drift, ErrorS: 1e-4}); got != says {
			t.Errorf("%q, want %q", got, says)
		}
	}
	if got := clockOf(in.Measured, &trace.Process{}); got != "is the one that times are on" {
		t.Error(got)
	}
}

func TestNumbersSayWhereTheirWorkersAre(t *testing.T) {
	rows, err := Compare(onHosts(9e-4, 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		switch {
		case r.Worker < 0 && r.Process == nil && r.Host == "":
		case r.Worker >= 0 && r.Process != nil && *r.Process == r.Worker && r.Host == string("aabb"[r.Worker]):
		default:
			t.Errorf("%+v", r)
		}
	}
}

// Viewers show a process for each process of the run, and no arrow goes back in time.
func TestViewersHaveAProcessForEach(t *testing.T) {
	in := onHosts(9e-4, -5e-4)
	var chrome, perfetto bytes.Buffer
	if err := ChromeJSON(&chrome, in.Measured); err != nil {
		t.Fatal(err)
	}
	if err := Perfetto(&perfetto, in.Measured); err != nil {
		t.Fatal(err)
	}
	var file struct{ TraceEvents []chromeEvent }
	if err := json.Unmarshal(chrome.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	begun, ended, early := map[string]string{}, 0, 0
	for _, e := range file.TraceEvents {
		switch {
		case e.Name == "process_name":
			if want := in.Measured.NameOf(e.Process); e.Args["name"] != want {
				t.Errorf("process %d is called %v, want %s", e.Process, e.Args["name"], want)
			}
		case e.Name == "thread_name":
			if name := e.Args["name"].(string); !strings.HasPrefix(name, "worker ") {
				t.Errorf("a thread is called %q", name)
			}
		case e.Phase == "s":
			begun[e.ID] = string(e.TimeUS)
		case e.Args["clocks"] != nil:
			early++
		}
	}
	for _, e := range file.TraceEvents {
		if e.Phase == "f" {
			var from, to float64
			json.Unmarshal([]byte(begun[e.ID]), &from)
			json.Unmarshal([]byte(e.TimeUS), &to)
			if ended++; to < from {
				t.Errorf("an arrow of %s goes from %v to %v µs", e.ID, from, to)
			}
		}
	}
	if early == 0 || ended == 0 {
		t.Errorf("%d messages came early, %d arrows are drawn", early, ended)
	}
	for _, want := range []string{"rank 3 on host b", "worker 2: compute", "by the clocks it came before it left, " +
		"which is within their error"} {
		if !bytes.Contains(perfetto.Bytes(), []byte(want)) {
			t.Errorf("Perfetto's file says nothing about %q", want)
		}
	}
}
