package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// A shape that is written as a plan is simulated to the same step: to the last digits where there is one replica,
// within a twentieth where replicas sum gradients, for which the two have different equations. What a plan has no
// field for it says.
func TestAShapesPlanIsSimulatedAlike(t *testing.T) {
	p := &clitest.Program{Dir: t.TempDir(), Native: "none", Cache: t.TempDir()}
	if err := os.WriteFile(filepath.Join(p.Dir, "pair.yaml"), []byte(`name: pair
device_types: {gpu: {like: a100-80gb}}
device: gpu
levels:
  - {name: server, size: 4, bandwidth: 300GB/s, latency: 3us}
  - {name: fabric, size: 2, bandwidth: 25GB/s, latency: 10us}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	const of = " --model gpt --set layers=12 --set width=1024 --set heads=16 --set context=1024 --set vocabulary=32000 " +
		"--cluster pair.yaml "
	for layout, c := range map[string]struct {
		within float64
		says   string
	}{
		"--replicas 1 --stages 1 --tensor 1 --recompute none":            {1e-9, ""},
		"--replicas 1 --stages 4 --tensor 1 --recompute none":            {1e-9, ""},
		"--replicas 1 --stages 4 --tensor 1 --recompute none --chunks 3": {1e-9, ""},
		"--replicas 1 --stages 2 --tensor 4 --recompute none":            {1e-3, ""}, // whose devices send parts of a message
		"--replicas 2 --stages 4 --tensor 1 --recompute none":            {0.05, ""},
		"--replicas 8 --stages 1 --tensor 1 --recompute none":            {0.05, ""},
		"--replicas 1 --stages 4 --tensor 1 --recompute full":            {0.25, "blocks alone are computed again"},
		"--replicas 1 --stages 4 --tensor 1 --recompute selective":       {0.05, "is of parts of layers"},
		"--replicas 8 --stages 1 --tensor 1 --recompute none --shard zero1": {0.1,
			"replicas divide what they keep (zero1)"},
	} {
		var swept struct {
			Shapes []struct {
				StepS float64 `json:"step_s"`
			}
		}
		var simulated struct {
			StepS float64 `json:"step_s"`
		}
		var plan struct{ Why []string }
		text := p.Run(t, strings.Fields("plan --sweep --json -o plan.json --precision bf16 --batch 64 --micro-batch 2 "+
			layout+of), false)
		if err := json.Unmarshal([]byte(text), &swept); err != nil {
			t.Fatalf("%s: %v\n%s", layout, err, text)
		}
		text = p.Run(t, strings.Fields("simulate --json --plan plan.json"+of), false)
		if err := json.Unmarshal([]byte(text), &simulated); err != nil {
			t.Fatalf("%s: %v\n%s", layout, err, text)
		}
		if want := swept.Shapes[0].StepS; !(math.Abs(simulated.StepS/want-1) <= c.within) {
			t.Errorf("%s: simulated %v s, predicted %v s", layout, simulated.StepS, want)
		}
		file, err := os.ReadFile(filepath.Join(p.Dir, "plan.json"))
		if err == nil {
			err = json.Unmarshal(file, &plan)
		}
		if err != nil {
			t.Fatal(err)
		}
		if why := strings.Join(plan.Why, "; "); !strings.Contains(why, c.says) || (len(plan.Why) > 1) != (c.says != "") {
			t.Errorf("%s: it says %q, want %q", layout, why, c.says)
		}
	}
}
