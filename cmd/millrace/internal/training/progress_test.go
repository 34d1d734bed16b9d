package training

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/control"
)

// Behind the last step the live line says what is being done, and no longer what is done already.
func TestTheLiveLineGoesOnFromSavingToEvaluating(t *testing.T) {
	at := filepath.Join(t.TempDir(), "screen")
	screen, err := os.Create(at)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	p := &progress{to: screen, steps: 2, every: map[string]int{saving: 0, evaluating: 0},
		cost: map[string]float64{stepping: 1, saving: 1, evaluating: 1}}
	last := func() string {
		text, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(string(text[strings.LastIndexByte(string(text), '\r')+1:]), "\x1b[K")
	}
	p.step(run.StepReport{Step: 1, Loss: 2.5}, nil)
	if got := last(); !strings.HasPrefix(got, "step 2/2  loss 2.5000") || !strings.HasSuffix(got, "  saving") {
		t.Errorf("behind the last step it reads %q", got)
	}
	p.behind()
	if got := last(); !strings.HasPrefix(got, "step 2/2  loss 2.5000") || !strings.HasSuffix(got, "  evaluating") {
		t.Errorf("behind the save it reads %q", got)
	}
	drawn := last()
	p.behind()
	if got := last(); got != drawn {
		t.Errorf("behind the evaluation it reads %q", got)
	}
}

// Rate and bubble of the line are medians over the last steps, and say of how many: one that was interrupted does not
// count for more than any other.
func TestTheStepLineIsOfTheLastSteps(t *testing.T) {
	p := &progress{batch: 100}
	for step := range 200 {
		took := run.StepReport{Step: step, Seconds: 1, Workers: []control.Did{{BusyS: .5}, {BusyS: 1}}}
		if step < 130 || step == 199 {
			took.Seconds = 10
		}
		p.keep(took)
		if want := "  10.00 samples/s  bubble 92.5 %"; step == 0 && p.pace() != want {
			t.Errorf("of the first step it says %q; want %q", p.pace(), want)
		}
	}
	if got, want := p.pace(), "  100.0 samples/s  bubble 25.0 % over 64 steps"; got != want {
		t.Errorf("it says %q; want %q", got, want)
	}
}
