package training

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/run"
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
	if got := last(); !strings.HasPrefix(got, "step 2/2  loss 2.5000") || !strings.HasSuffix(got, "%  evaluating") {
		t.Errorf("behind the save it reads %q", got)
	}
	drawn := last()
	p.behind()
	if got := last(); got != drawn {
		t.Errorf("behind the evaluation it reads %q", got)
	}
}
