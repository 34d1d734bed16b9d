package exchange_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/exchange"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
)

// TestReadTellsTheFormsApart: Read recognises text, JSON and PyTorch's CSV, and reads the same Program from each.
func TestReadTellsTheFormsApart(t *testing.T) {
	p, err := family.Generate("zb-h1", schedule.Settings{Placement: schedule.Replicated(3, 1), MicroBatches: 4,
		Replication: schedule.Split})
	if err != nil {
		t.Fatal(err)
	}
	var asJSON, asCSV bytes.Buffer
	if err := p.WriteJSON(&asJSON); err != nil {
		t.Fatal(err)
	}
	if err := exchange.WriteTorchCSV(&asCSV, p); err != nil {
		t.Fatal(err)
	}
	for form, text := range map[string]string{"text": p.Text(), "json": asJSON.String(), "csv": asCSV.String()} {
		got, err := exchange.Read(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if d := cmp.Diff(p.Body, got.Body); d != "" {
			t.Errorf("%s: %s", form, d)
		}
	}
	for text, want := range map[string]string{
		"":                  "program text is empty",
		"nothing, at all\n": `line 1: it begins "nothing, at all"`,
		"{}":                "version 0",
		"0F0,0Q0\n":         `line 1, cell 2: schedule: instruction "0Q0": there is no kind "Q"`,
	} {
		if _, err := exchange.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want it to say %q", text, err, want)
		}
	}
}

// FuzzRead: no file makes the readers, Check or the drawing panic or hang. What passes Check can be drawn.
func FuzzRead(f *testing.F) {
	p, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2})
	if err != nil {
		f.Fatal(err)
	}
	var asJSON bytes.Buffer
	if err := p.WriteJSON(&asJSON); err != nil {
		f.Fatal(err)
	}
	f.Add(p.Text())
	f.Add(asJSON.String())
	f.Add("0F0,0B0\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := exchange.Read(strings.NewReader(text))
		if err != nil || p.Repeat > 8 {
			return
		}
		if _, err := check.Check(p); err != nil {
			return
		}
		if _, err := scheduletest.Draw(p, scheduletest.UnitSlots); err != nil {
			t.Errorf("checked, and cannot be drawn: %v", err)
		}
	})
}

// TestHoldings: PipeDream's stage i of S keeps S-i versions and S-i minibatches (§3.3). For each minibatch it sends one
// activation or gradient over each boundary. A second Program has a stage with two replicas, which are counted one by
// one.
func TestHoldings(t *testing.T) {
	const S, N = 4, 12
	p, err := family.Generate("1f1b-rr", schedule.Settings{Placement: schedule.Replicated(S, 1), MicroBatches: 1,
		Repeat: N})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range p.Holdings() {
		want := schedule.Holding{Stage: i, Worker: i, Peak: S - i, Versions: S - i, Activations: N, Gradients: N}
		if i == 0 {
			want.Gradients = 0
		}
		if i == S-1 {
			want.Activations = 0
		}
		if got != want {
			t.Errorf("stage %d: %+v, want %+v", i, got, want)
		}
	}
	two, err := family.Generate("1f1b", schedule.Settings{Placement: [][]int{{0, 1}, {2}}, MicroBatches: 3,
		Replication: schedule.Split})
	if err == nil {
		two, err = lower.Lower(two, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	want := []schedule.Holding{
		{Replica: 0, Worker: 0, Peak: 2, Versions: 1, Activations: 3, Reductions: 1},
		{Replica: 1, Worker: 1, Peak: 2, Versions: 1, Activations: 3, Reductions: 1},
		{Stage: 1, Worker: 2, Peak: 1, Versions: 1, Gradients: 6},
	}
	if d := cmp.Diff(want, two.Holdings()); d != "" {
		t.Error(d)
	}
}
