package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// docs/clusters.md shows calibrate's output for the examples. The file that calibrate writes can be read, and hardly
// changes in a second fit to the same measurements.
func TestTheDocumentedCalibration(t *testing.T) {
	p := &clitest.Program{Dir: t.TempDir(), Native: "none", Cache: t.TempDir()}
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(p.Dir, "examples")); err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, s := range clitest.ShownIn(t, "../../docs/clusters.md", "millrace") {
		if s.Args[0] != "calibrate" {
			continue
		}
		shown++
		if got := p.Run(t, s.Args, false); got != strings.Join(s.Want, "\n")+"\n" {
			t.Errorf("millrace %s prints\n%s", strings.Join(s.Args, " "), got)
		}
	}
	if shown != 1 {
		t.Fatalf("%d calibrations are shown", shown)
	}
	fitted, err := cluster.Read(filepath.Join(p.Dir, "fitted.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := fitted.DeviceTypes["gpu"].Kernels.Rate("matmul").Limit; got < 0.6 || got > 0.8 {
		t.Errorf("products reach %v of the peak; the table's runs are 0.44 to 0.52 of it with all that they do", got)
	}
	again := p.Run(t, strings.Fields("calibrate fitted.yaml examples/measured-a100.csv --fit matmul.limit,memory.limit"),
		false)
	if !strings.Contains(again, "error       0.8 % before") {
		t.Errorf("%s", again)
	}
	var said struct {
		Numbers  []struct{ Name string }
		After    float64                    `json:"error_after"`
		HeldOut  float64                    `json:"error_held_out"`
		Next     []struct{ Measure string } `json:"measure_next"`
		Residual []struct{ Name string }    `json:"residuals"`
	}
	text := p.Run(t, strings.Fields("calibrate examples/dgx-a100s.yaml examples/measured-a100.csv --json"), false)
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		t.Fatal(err)
	}
	if len(said.Numbers) != 9 || !(said.After > 0 && said.HeldOut > said.After) || len(said.Next) != 3 ||
		len(said.Residual) != 3 {
		t.Errorf("%+v", said)
	}
}

// A calibration that is stopped ends soon with the signal's code, and leaves no file.
func TestACalibrationIsStopped(t *testing.T) {
	t.Parallel()
	var rows strings.Builder
	rows.WriteString("layers,hidden,heads,seq_len,vocab,micro_batch,global_batch,precision,iteration_s,pp,tp\n")
	for i := range 60 {
		fmt.Fprintf(&rows, "96,%d,64,2048,51200,1,256,f16,9,16,8\n", 1024+64*i)
	}
	for signal, code := range clitest.Ends {
		p := &clitest.Program{Dir: t.TempDir(), Native: "none", Cache: t.TempDir()}
		if err := os.WriteFile(filepath.Join(p.Dir, "m.csv"), []byte(rows.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		said := p.StopAtWork(t, "calibrate dgx-a100:16x8 m.csv -o out.yaml", "", signal, code)
		if left := p.List(t, "."); !strings.Contains(said, "nothing was written") || left != "m.csv\n" {
			t.Errorf("%v: it said %q and left %q", signal, said, left)
		}
	}
}
