package report

import (
	"bytes"
	"testing"

	"github.com/millrace-ml/millrace/trace/tracetest"
)

// Workers are a plan's devices in ascending order. A plan on devices 7 and 4 has the same reports as one on 1 and 0.
func TestDevicesAreShownAsWorkers(t *testing.T) {
	draw := func(devices ...int) (terminal, page string) {
		in := sample(tracetest.TwoStages())
		for s := range in.Plan.Stages {
			in.Plan.Stages[s].Devices = devices[s : s+1]
		}
		var text, html bytes.Buffer
		if err := Terminal(&text, in); err != nil {
			t.Fatal(err)
		}
		if err := HTML(&html, in); err != nil {
			t.Fatal(err)
		}
		if in.Plan.Stages[0].Devices[0] != devices[0] {
			t.Error("drawing has changed the plan")
		}
		return text.String(), html.String()
	}
	terminal, page := draw(7, 4)
	wantTerminal, wantPage := draw(1, 0)
	if terminal != wantTerminal {
		t.Errorf("on devices 7 and 4\n%s\non 1 and 0\n%s", terminal, wantTerminal)
	}
	if page != wantPage {
		t.Error("the page of devices 7 and 4 is another than that of 1 and 0")
	}
	if first, _ := draw(0, 1); first == wantTerminal {
		t.Error("which stage is on which worker does not show")
	}
}

// A caption says how much the drawn step differs from the median, if that is visible.
func TestHowFarADrawnStepIsFromTheMedian(t *testing.T) {
	for tookS, want := range map[float64]string{2.2: ", 10.0 % longer", 1.936: ", 3.2 % shorter", 2.008: "", 2: ""} {
		if got := (shownStep{tookS: tookS, ofS: 2}).apart(); got != want {
			t.Errorf("of %v s beside 2 s it says %q, want %q", tookS, got, want)
		}
	}
}
