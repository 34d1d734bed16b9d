package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/internal/browsertest"
	"github.com/millrace-ml/millrace/report/live"
)

// slowly is a training with slow links, so that a browser has time to look. It ends with the same bits as a training
// with fast links.
const slowly = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --split 1 --eval-rows 8 " +
	"--lr 0.003 --lr-warmup 5 --save-every 20 --eval-every 20 "

const slowLinks = `name: slow
device_types:
  cpu: {memory: 16GiB, peak: 1TFLOPS, memory_bandwidth: 10GB/s}
device: cpu
levels:
  - {name: host, size: 2, bandwidth: 1GB/s, latency: 10ms}
`

// watchedRun is a run with --live whose first line on stdout has been read.
type watchedRun struct {
	url  string
	end  func(t *testing.T, code int) // stops the run, and waits for its end
	errs *said
}

func trainWatched(t *testing.T, p *clitest.Program, line string) watchedRun {
	t.Helper()
	c := p.Command(t, strings.Fields(line))
	errs := &said{}
	c.Stderr = errs
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() }) // for a test that has failed
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	url, is := strings.CutPrefix(strings.TrimSuffix(first, "\n"), "live ")
	if err != nil || !is || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("the first line is %q (%v):\n%s", first, err, errs)
	}
	return watchedRun{url, func(t *testing.T, code int) {
		t.Helper()
		if err := c.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(lines)
		_ = c.Wait() // the exit code is the result
		if got := c.ProcessState.ExitCode(); err != nil || got != code || !bytes.Contains(rest,
			[]byte("\nwatch       millrace serve ")) {
			t.Fatalf("it ends with %d, not %d (%v):\n%s%s", got, code, err, rest, errs)
		}
	}, errs}
}

// stepsIn returns how many steps are in a run's metrics.
func stepsIn(dir string) int {
	text, _ := os.ReadFile(filepath.Join(dir, "metrics.jsonl")) // the file may not exist yet
	return bytes.Count(text, []byte(`"step_s"`))
}

// A browser shows a run while it lasts. Killing the browser does not stop the run, whose weights equal those of a run
// without a browser. After the run, the live page and the report say the same.
func TestARunIsWatched(t *testing.T) {
	t.Parallel()
	if os.Getenv("MILLRACE_BROWSER") == "none" {
		t.Skip("MILLRACE_BROWSER=none: no page is opened")
	}
	p := profiled(t)
	write(t, filepath.Join(p.Dir, "slow.yaml"), slowLinks)
	b, err := browser.Start()
	if errors.Is(err, browser.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	run := trainWatched(t, p, slowly+"--wire slow.yaml --steps 1000000 --live --out watched")
	page, err := b.Open(run.url, browser.View{Width: 1280})
	if err != nil {
		t.Fatal(err)
	}
	const done = `+document.querySelector("[role=progressbar]")?.getAttribute("aria-valuenow")`
	has := func(chart string) string {
		return fmt.Sprintf(`[...document.querySelectorAll(".chart:not([hidden]) figcaption span:first-child")].some(
			e => e.textContent === %q)`, chart)
	}
	for _, seen := range []string{
		`document.querySelector(".state.going")`, done + " > 0", `document.querySelectorAll(".memory .peak").length === 2`,
		has("Loss"), has("Evaluation loss"), `document.querySelector(".kind-checkpoint")`,
		`document.querySelectorAll(".card").length >= 4 && document.body.textContent.includes("the last so far")`,
		`document.getElementById("timeline").clientHeight > 100 && !document.querySelector("section p:not([hidden])")
			?.textContent.includes("has not written a step")`,
	} {
		if err := page.Wait("Boolean(" + seen + ")"); err != nil {
			t.Fatalf("%v\n%s", err, run.errs)
		}
	}
	var before int
	if err := errors.Join(page.Eval(done, &before), page.Wait(fmt.Sprintf("%s > %d", done, before))); err != nil {
		t.Fatalf("no step arrives behind %d: %v", before, err)
	}
	if faults := page.Faults(); faults != nil {
		t.Error(faults)
	}
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(p.Dir, "watched")
	for from, late := stepsIn(dir), time.After(3*time.Minute); stepsIn(dir) < from+20; {
		select {
		case <-late:
			t.Fatalf("it stands still behind step %d since the browser is gone:\n%s", from, run.errs)
		case <-time.After(10 * time.Millisecond):
		}
	}
	run.end(t, 130)

	steps := stepsIn(dir)
	if out := p.Run(t, strings.Fields(fmt.Sprintf("%s--steps %d --out alone", slowly, steps)), true); out != "" {
		t.Fatal(out)
	}
	last := fmt.Sprintf("checkpoints/step-%08d", steps)
	sameTensors(t, p, filepath.Join("watched", last), filepath.Join("alone", last))
	agree(t, p, filepath.Join(p.Dir, "alone"))
	agree(t, p, dir)
}

// agree compares the live page of an ended run with its report, both in a browser.
func agree(t *testing.T, p *clitest.Program, dir string) {
	t.Helper()
	c := p.Command(t, []string{"serve", dir})
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	first, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(strings.TrimPrefix(first, "live "))
	t.Run(filepath.Base(dir), func(t *testing.T) { agreeAt(t, url+"#run="+live.IDOf(dir), dir) }) // to close both pages
}

// agreeAt opens and compares both pages.
func agreeAt(t *testing.T, url, dir string) {
	page := browsertest.Open(t, url, browser.View{Width: 1280})
	drawn := browsertest.Open(t, filepath.Join(dir, "report.html"), browser.View{Width: 1280})
	page.Wait(`document.querySelectorAll(".card").length === 6 && document.querySelector(".memory .says") &&
		document.querySelectorAll(".chart").length > 4`)
	cards, reported := page.Texts(".card > *"), drawn.Texts(".card > *")
	if len(reported) != 7*3 || fmt.Sprint(cards[:4*3]) != fmt.Sprint(reported[:4*3]) || cards[13] != reported[13] ||
		cards[14] != "evaluation "+reported[16] || cards[16] != reported[19] { // loss, evaluation loss, accuracy
		t.Errorf("the page says %q and the report %q", cards, reported)
	}
	over := drawn.Texts("#numbers + p")
	if head := page.Texts("#single > section:first-child p"); len(over) != 1 || fmt.Sprint(head) != fmt.Sprint(over) {
		t.Errorf("the page says %q and the report %q", head, over)
	}
	var data struct {
		Losses, EvalLosses, Accuracies struct{ Y []float64 }
		Texts                          []string `json:"peak_texts"`
	}
	text := drawn.Text(`document.getElementById("data").textContent`)
	if err := json.Unmarshal([]byte(strings.ReplaceAll(text, "eval_losses", "EvalLosses")), &data); err != nil {
		t.Fatal(err)
	}
	held, loss, right := data.EvalLosses.Y, data.Losses.Y, data.Accuracies.Y
	want := []string{"loss", fmt.Sprintf("%.4f", loss[len(loss)-1]), fmt.Sprintf("evaluation %.4f", held[len(held)-1]),
		"evaluation accuracy", fmt.Sprintf("%.2f %%", 100*right[len(right)-1]), "at the last evaluation"}
	if fmt.Sprint(cards[4*3:]) != fmt.Sprint(want) {
		t.Errorf("the page says %q and the report %q", cards[4*3:], want)
	}
	for w, says := range page.Texts(".memory .says") {
		for side := range strings.SplitSeq(strings.TrimPrefix(data.Texts[w], "peak: "), ", ") {
			if !strings.Contains(says, strings.Replace(side, "measured", "peak", 1)) {
				t.Errorf("of worker %d's memory the page says %q and the report %q", w, says, data.Texts[w])
			}
		}
	}
	if a, b := page.Text(`document.querySelector("#single select")?.selectedOptions[0]?.textContent ?? ""`),
		drawn.Text(`document.querySelector("#choose").selectedOptions[0]?.textContent ?? ""`); a != b {
		t.Errorf("the page draws %q and the report %q", a, b)
	}
}
