package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/report/live"
	"github.com/millrace-ml/millrace/report/metrics"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// sizes says at which numbers of steps a page is measured.
type sizes struct {
	Open  int   // steps when the page is opened
	Grow  []int // numbers of steps at later times, while steps are added
	Batch int   // steps that are added at once
}

// written is a run's folder, to which steps are added as in a training.
type written struct {
	dir   string
	lines *os.File
	steps int
}

// write begins a run with two workers.
func write(dir string) (*written, error) {
	p := tracetest.TwoStages()
	simulated := p.Timeline()
	p.Source, p.Seed, p.Noise = "run", 1, .1
	n := report.NumbersOf(simulated, 0, 32)
	pl := plan.Plan{Version: plan.Version, Model: "gpt", Replication: "split", MicroBatch: 4, MicroBatches: p.MicroBatches,
		Schedule: "1f1b", Weights: "sync", Planner: "balance", Why: []string{"it is written down"},
		Stages: []plan.Stage{{LastLayer: 7, Devices: []int{0}, Warmup: 2}, {FirstLayer: 8, LastLayer: 15, Devices: []int{1},
			Warmup: 1}},
		Predicted: &plan.Predicted{StepS: n.StepS, SamplesPerSecond: 32 / n.StepS, Bubble: n.Bubble, BusyS: n.BusyS,
			MemoryBytes: n.PeakBytes, PeakActivations: n.PeakActivations}}
	begun, err := json.Marshal(metrics.Event{Time: time.Now(), Kind: metrics.Begun, Text: "begins"})
	lines, opening := os.Create(filepath.Join(dir, folder.MetricsName))
	return &written{dir: dir, lines: lines}, errors.Join(err, opening, (&folder.Start{}).Write(dir),
		pl.Write(filepath.Join(dir, folder.PlanName)), simulated.WriteFile(filepath.Join(dir, folder.PredictedName)),
		p.Timeline().WriteFile(filepath.Join(dir, folder.StepName)),
		os.WriteFile(filepath.Join(dir, folder.EventsName), append(begun, '\n'), 0o600))
}

// add adds steps, with an evaluation after each hundredth step.
func (w *written) add(steps int) error {
	var text []byte
	for range steps {
		k := w.steps // from 0; the file counts from 1
		s := .5 + .1*math.Sin(float64(k)*1.7)
		line, err := json.Marshal(metrics.StepValues{Time: time.Now(), Step: k + 1, Loss: 6/math.Sqrt(float64(k+1)) + .1*s,
			LearningRate: 1e-3, GradientNorm: s, StepS: s, SamplesPerSecond: 32 / s, Bubble: .2 * s,
			Samples: int64(32 * (k + 1)), BusyS: []float64{.8 * s, .7 * s}, PeakBytes: []int64{2e8, 1e8},
			LiveBytes: []int64{1e8, 5e7}})
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
		if w.steps++; w.steps%100 == 0 {
			if line, err = json.Marshal(metrics.EvaluationValues{Time: time.Now(), Step: k + 1,
				Loss: 6 / math.Sqrt(float64(k)), Accuracy: new(.5)}); err != nil {
				return err
			}
			text = append(append(text, line...), '\n')
		}
	}
	_, err := w.lines.Write(text)
	return err
}

// counted is a response writer that counts the bytes.
type counted struct {
	http.ResponseWriter
	bytes *atomic.Int64
}

func (c counted) Write(text []byte) (int, error) {
	n, err := c.ResponseWriter.Write(text)
	c.bytes.Add(int64(n))
	return n, err
}

func (c counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// serve serves a run's pages. It counts the bytes of the page itself and of its data.
func serve(dir string) (url string, page, data *atomic.Int64, end func(), err error) {
	shelf, err := live.New([]string{dir})
	if err != nil {
		return "", nil, nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, nil, nil, errors.Join(err, shelf.Close())
	}
	page, data = &atomic.Int64{}, &atomic.Int64{}
	handler := shelf.Handler()
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			of := page
			if r.URL.Path == "/stream" {
				of = data
			}
			handler.ServeHTTP(counted{w, of}, r)
		})}
	crash.Go(func() { _ = server.Serve(listener) }) // ends when the server is closed
	return fmt.Sprintf("http://%s/#run=%s", listener.Addr(), live.IDOf(dir)), page, data, func() {
		_, _ = shelf.Close(), server.Close()
	}, nil
}

// redrawn is a JavaScript expression: the time to redraw the whole page, including its curves.
const redrawn = "millraceRedraws.page + millraceRedraws.curves"

// measure opens the page of a run in a browser, and measures it while steps are added.
func measure(b *browser.Browser, dir string, n sizes, f *bench.LivePage) error {
	run, err := write(dir)
	if err != nil {
		return err
	}
	defer run.lines.Close()
	if err := run.add(n.Open); err != nil {
		return err
	}
	url, pageBytes, dataBytes, end, err := serve(dir)
	if err != nil {
		return err
	}
	defer end()
	page, err := b.Open(url, browser.View{Width: 1280})
	if err != nil {
		return err
	}
	defer page.Close()
	if err := arrives(page, run.steps); err != nil {
		return err
	}
	f.Steps, f.PageBytes, f.DataBytes = n.Open, pageBytes.Load(), dataBytes.Load()
	for range 30 { // the key l redraws everything
		var ms float64
		if err := errors.Join(page.Press("l"), page.Settle(), page.Eval(redrawn, &ms)); err != nil {
			return err
		}
		f.RedrawMS = append(f.RedrawMS, ms)
		f.MostMS = max(f.MostMS, ms)
	}
	f.MedianMS = stats.Median(f.RedrawMS)
	for _, steps := range n.Grow {
		for run.steps < steps {
			if err := run.add(min(n.Batch, steps-run.steps)); err != nil {
				return err
			}
			if err := arrives(page, run.steps); err != nil {
				return err
			}
		}
		held, err := page.Held()
		if err != nil {
			return err
		}
		f.Grown = append(f.Grown, bench.LiveHeld{Steps: steps, HeapBytes: held.HeapBytes, Nodes: held.Nodes,
			Listeners: held.Listeners})
	}
	if faults := page.Faults(); faults != nil {
		return fmt.Errorf("the page has faults: %q", faults)
	}
	return nil
}

// arrives waits until the page shows this many steps.
func arrives(page *browser.Page, steps int) error {
	return errors.Join(page.Wait(fmt.Sprintf(`millraceRedraws.count > 0 && document.querySelectorAll(".card").length > 3 &&
		document.querySelector("#single > section .state + span")?.textContent.replaceAll(",", "").startsWith("%d steps")`,
		steps)), page.Settle())
}
