package exchange_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/exchange"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

func TestTorchCSV(t *testing.T) {
	p, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 3})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := exchange.WriteTorchCSV(&b, p); err != nil {
		t.Fatal(err)
	}
	const want = "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
	back, err := exchange.ReadTorchCSV(strings.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back.Body, p.Body) || !reflect.DeepEqual(back.Placement, p.Placement) ||
		back.MicroBatches != 3 {
		t.Errorf("%s", back.Text())
	}
}

// TestTorchCSVOfOthers reads a file as PyTorch writes it. The file has waiting slots, split backwards, two stages on a
// rank in a V, and two actions at once.
func TestTorchCSVOfOthers(t *testing.T) {
	const v = "0F0,0F1,,3F0,3I0,3W0,(3F1;3B1)OVERLAP_F_B,0I0,0W0,0B1\n,1F0,1F1,2F0,2F1,2B0,1B0,2B1,1B1\n"
	p, err := exchange.ReadTorchCSV(strings.NewReader(v))
	if err != nil {
		t.Fatal(err)
	}
	if p.Stages != 4 || p.Workers != 2 || p.MicroBatches != 2 ||
		!reflect.DeepEqual(p.Placement, [][][]int{{{0}, {1}, {1}, {0}}}) {
		t.Errorf("%s", p.Text())
	}
	p, err = lower.Lower(p, lower.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := check.Check(p); err != nil {
		t.Error(err)
	}
}

func TestTorchCSVRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":               "is empty",
		"0F0\n1G0\n":     `line 2, cell 1: schedule: instruction "1G0"`,
		"0F0,0SEND_F0\n": "line 1, cell 2: action \"0SEND_F0\"; only computation",
		"0F0,0U0\n":      `action "0U0"`,
		"0F0\n0B0\n":     "0B0 is of stage 0, which is on rank 0",
		"0F0\n2F0\n":     "has stage 2 and no stage 1",
		"0F0\n,\n1F0\n":  "rank 1 has no action",
		"(0F0;0B0)\n":    "actions together",
		"\"0F0\n":        "PyTorch's schedule",
	} {
		if _, err := exchange.ReadTorchCSV(strings.NewReader(text)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for want, s := range map[string]schedule.Settings{
		"stage 1 has 1 replicas and stage 0 has 2": {Placement: [][]int{{0, 1}, {2}}, MicroBatches: 4},
		"take micro-batches in turn":               {Placement: [][]int{{0, 1}, {2, 3}}, MicroBatches: 4},
		"stage 1 is recomputed": {Placement: schedule.Replicated(2, 1), MicroBatches: 4,
			Recompute: []plan.Recompute{plan.KeepAll, plan.Every(2)}},
	} {
		p, err := family.Generate("1f1b", s)
		if err != nil {
			t.Fatal(err)
		}
		if err := exchange.WriteTorchCSV(&bytes.Buffer{}, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	p, err := family.Generate("1f1b", schedule.Settings{Placement: [][]int{{0, 1}, {2, 3}}, MicroBatches: 2,
		Replication: schedule.Split})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := exchange.WriteTorchCSV(&b, p); err != nil || b.String() != "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n" {
		t.Errorf("a mesh of two pipelines: %v\n%s", err, b.String())
	}
}

func FuzzTorchCSV(f *testing.F) {
	f.Add("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
	f.Add("0F0,,(0F1;0B0)OVERLAP_F_B,0I1,0W1\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := exchange.ReadTorchCSV(strings.NewReader(text))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := exchange.WriteTorchCSV(&b, p); err != nil {
			t.Fatal(err)
		}
		back, err := exchange.ReadTorchCSV(&b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(p, back) {
			t.Errorf("%s\n%s", p.Text(), back.Text())
		}
	})
}

// TestWhatIsNoProgramIsNotExported: the export of a Program that no rank could run returns an error, and does not
// panic.
func TestWhatIsNoProgramIsNotExported(t *testing.T) {
	const fields = `"version":1,"name":"x","stages":1,"micro_batches":1,"period":1,"repeat":1,"weights":"sync",` +
		`"replication":"split",`
	for text, want := range map[string]string{
		`{"workers":1,` + fields + `"placement":[[[]]]}`:                     "stage 0 of pipeline 0 is on 0 workers",
		`{"workers":1,` + fields + `"placement":[[[5]]]}`:                    "is on worker 5; workers are 0 to 0",
		`{"workers":9,` + fields + `"placement":[[[5]]],"body":[["0F0"]]}`:   "worker 0, instruction 0 (0F0): replica 0",
		`{"workers":9,` + fields + `"placement":[[[5]]],"body":[[],[],[]]}`:  "worker 5 computes nothing",
		`{"workers":9,` + fields + `"placement":[[[5]]],"prologue":[[],[]]}`: "worker 5 computes nothing",
	} {
		p, err := exchange.Read(strings.NewReader(text))
		if err == nil {
			err = exchange.WriteTorchCSV(&bytes.Buffer{}, p)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
