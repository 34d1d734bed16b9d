package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/internal/browsertest"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/trace"
)

// TestCurvesMarkWhereARunWasResumed: a run of 120 steps was resumed after step 60. A dashed line stands at step 61 of
// its curves: from top to bottom, far more pixels are drawn there than beside the line. Curves over time and over
// samples have a mark too. The curves of a run that was never resumed have none.
func TestCurvesMarkWhereARunWasResumed(t *testing.T) {
	root := t.TempDir()
	dir, whole := trained(t, root, "parts", true), trained(t, root, "whole", true)
	for i, kind := range []string{metrics.Stopped, metrics.Begun} {
		at := time.Now().Add(time.Duration(i-2) * time.Minute).Format(time.RFC3339)
		text := fmt.Sprintf(`{"time":%q,"step":60,"kind":%q,"text":"it"}`+"\n", at, kind)
		add(t, filepath.Join(dir, folder.EventsName), text)
	}
	_, server := shelfOf(t, root)
	const chart = `[...document.querySelectorAll("#single .chart canvas")].find(c =>
		/^Step time/.test(c.getAttribute("aria-label")))`
	open := func(dir, view string) *browsertest.Page {
		p := browsertest.Open(t, server.URL+"/#run="+IDOf(dir)+view, browser.View{Width: 1280})
		p.Wait(chart + ` !== undefined`)
		return p
	}
	p := open(dir, "")
	p.Wait(`/resumed after step 60$/.test(` + chart + `.getAttribute("aria-label"))`)
	// The plot begins at pixel 62 and ends 10 pixels before the canvas does; its axis goes from step 1 to step 120.
	var dashed struct{ At, Beside int }
	p.Eval(`(() => { const c = `+chart+`, each = c.width / c.clientWidth, ctx = c.getContext("2d")
		const x = 62 + 60 / 119 * (c.clientWidth - 72)
		const bare = ctx.getImageData(0, 0, 1, 1).data.join()
		const count = (x) => { let most = 0
			for (const off of [-1, 0, 1]) { let n = 0
				for (let y = 10; y < 160; y++)
					if (ctx.getImageData(Math.round((x + off) * each), Math.round(y * each), 1, 1).data.join() !== bare) n++
				most = Math.max(most, n) }
			return most }
		return { At: count(x), Beside: count(x + 12) } })()`, &dashed)
	if dashed.At < dashed.Beside+30 {
		t.Errorf("at step 61, %d of 150 pixels are drawn, and %d beside it", dashed.At, dashed.Beside)
	}
	for _, axis := range []string{"time", "samples"} {
		open(dir, "&x="+axis).Wait(`/resumed after step 60$/.test(` + chart + `.getAttribute("aria-label"))`)
	}
	if got := open(whole, "").Text(chart + `.getAttribute("aria-label")`); strings.Contains(got, "resumed") {
		t.Errorf("of a run that was not resumed it says %q", got)
	}
}

// If a finished run is resumed only to be evaluated, the page draws the steps of the earlier part, as the report does.
func TestAnEvaluationIsNotDrawnAsAStep(t *testing.T) {
	dir := trained(t, t.TempDir(), "run", true)
	f := NewFollower(dir)
	f.Poll(true)
	was := f.drawn[1]
	measured, err := trace.ReadFile(filepath.Join(dir, folder.TimelineName))
	if err != nil || len(measured.Steps) == 0 {
		t.Fatal(err)
	}
	var names []string
	for _, name := range folder.Files {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			names = append(names, name)
		}
	}
	text := map[string][]byte{}
	for _, name := range names {
		if text[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := folder.Keep(dir, 120, ""); err != nil {
		t.Fatal(err)
	}
	for name, b := range text {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	measured.Steps, measured.Events = nil, nil
	if err := errors.Join((&folder.Start{Done: 120}).Write(dir),
		measured.WriteFile(filepath.Join(dir, folder.TimelineName))); err != nil {
		t.Fatal(err)
	}
	g := NewFollower(dir)
	g.Poll(true)
	if len(g.wrong) > 0 || !bytes.Equal(g.drawn[1].json, was.json) || len(was.json) == 0 {
		t.Errorf("%v: it draws %s; before %s", g.wrong, g.drawn[1].json, was.json)
	}
}

// Of a stream that has ended the page draws the step that the report draws, which is chosen by all steps' times.
func TestAStreamIsDrawnAsInItsReport(t *testing.T) {
	dir := trained(t, t.TempDir(), "run", true)
	measured, err := trace.ReadFile(filepath.Join(dir, folder.TimelineName))
	if err != nil {
		t.Fatal(err)
	}
	measured.Stream = true
	measured.Events = slices.DeleteFunc(measured.Events, func(e trace.Event) bool { return e.Step < 100 })
	if err := measured.WriteFile(filepath.Join(dir, folder.TimelineName)); err != nil {
		t.Fatal(err)
	}
	f := NewFollower(dir)
	f.Poll(true)
	run, err := folder.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	in := run.Inputs()
	name := func(text []byte, err error) string { // of the step that is drawn first
		var d struct{ Measured []struct{ Name string } }
		if err = errors.Join(err, json.Unmarshal(text, &d)); err != nil || len(d.Measured) == 0 {
			t.Fatalf("%v in %.300s", err, text)
		}
		return d.Measured[0].Name
	}
	got, want := name(f.drawn[1].json, nil), name(report.StepData(in))
	if alone := name(report.StepData(report.Inputs{Plan: in.Plan, Measured: measured})); got != want || alone == want {
		t.Errorf("%v: it draws %q; the report draws %q, and by the recorded steps alone it were %q", f.wrong, got, want,
			alone)
	}
}
