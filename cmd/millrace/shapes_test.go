package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/plan"
)

// If a shape is written as a plan, the plan keeps what the shape recomputes and shards, and when it sums gradients. The
// plan also has the simulator's prediction, and the verb simulate repeats it to the last digit. Shapes are ranked by
// closed forms. For one replica the closed forms agree with the simulator within a thousandth. Several replicas sum
// gradients in buckets over rings; the closed forms then agree within a twentieth. The simulator may count more memory
// than the closed forms: the logits and their gradients while the loss runs, and with zero2 and zero3 some tensors that
// are whole for a moment.
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
	const logits = 2 * 2 * 2 * 1024 * 32000                 // bytes of two samples' logits in bf16, with gradients
	const block, embedding = 12 * 1024 * 1024, 32000 * 1024 // numbers of parameters
	for layout, c := range map[string]struct {
		within                      float64 // allowed difference of the step
		moment                      int64   // bytes of tensors that are whole for a moment, with zero2 and zero3
		recompute, shard, gradients string
	}{
		"--replicas 1 --stages 1 --tensor 1 --recompute none":            {within: 1e-9, recompute: "none"},
		"--replicas 1 --stages 4 --tensor 1 --recompute none --chunks 3": {within: 1e-9, recompute: "none"},
		"--replicas 1 --stages 2 --tensor 4 --recompute none":            {within: 1e-3, recompute: "none"},
		"--replicas 1 --stages 4 --tensor 1 --recompute full":            {within: 1e-9, recompute: "blocks"},
		"--replicas 1 --stages 4 --tensor 1 --recompute selective":       {within: 1e-9, recompute: "selective"},
		"--replicas 2 --stages 4 --tensor 1 --recompute none --chunks 1": {
			within: 0.05, recompute: "none",
		},
		"--replicas 2 --stages 4 --tensor 1 --recompute full --gradients behind --chunks 1": {
			within: 0.05, recompute: "blocks", gradients: "behind",
		},
		"--replicas 4 --stages 1 --tensor 2 --recompute none --gradients behind": {
			within: 0.05, recompute: "none", gradients: "behind",
		},
		"--replicas 8 --stages 1 --tensor 1 --recompute none --shard zero1": {
			within: 0.05, recompute: "none", shard: "zero1",
		},
		"--replicas 8 --stages 1 --tensor 1 --recompute selective --shard zero2": {
			within: 0.05, recompute: "selective", shard: "zero2", moment: 4 * embedding,
		},
		"--replicas 8 --stages 1 --tensor 1 --recompute full --shard zero3": {
			within: 0.05, recompute: "blocks", shard: "zero3", moment: 4*embedding + 2*(embedding+block),
		},
		"--replicas 2 --stages 2 --tensor 2 --recompute full --shard zero3 --chunks 1": {
			within: 0.05, recompute: "blocks", shard: "zero3", moment: (4*embedding + 2*(embedding+block)) / 2,
		},
		"--replicas 8 --stages 1 --tensor 1 --recompute none --gradients bucket=4MiB": {
			within: 0.05, recompute: "none", gradients: "bucket=4MiB",
		},
	} {
		var swept struct {
			Shapes []struct {
				StepS       float64 `json:"step_s"`
				MemoryBytes []int64 `json:"memory_bytes"`
				Shape       struct{ Tensor int64 }
			}
		}
		var simulated, predicted plan.Predicted
		text := p.Run(t, strings.Fields("plan --sweep --json -o plan.json --precision bf16 --batch 64 --micro-batch 2 "+
			layout+of), false)
		if err := json.Unmarshal([]byte(text), &swept); err != nil {
			t.Fatalf("%s: %v\n%s", layout, err, text)
		}
		text = p.Run(t, strings.Fields("simulate --json --plan plan.json"+of), false)
		if err := json.Unmarshal([]byte(text), &simulated); err != nil {
			t.Fatalf("%s: %v\n%s", layout, err, text)
		}
		pl, err := plan.Read(filepath.Join(p.Dir, "plan.json"))
		if err != nil {
			t.Fatal(err)
		}
		if pl.Predicted != nil {
			predicted = *pl.Predicted
		}
		if !reflect.DeepEqual(simulated, predicted) {
			t.Errorf("%s: simulated %+v, predicted in the plan %+v", layout, simulated, predicted)
		}
		shape := swept.Shapes[0]
		if !(math.Abs(simulated.StepS/shape.StepS-1) <= c.within) {
			t.Errorf("%s: simulated %v s, as a shape %v s", layout, simulated.StepS, shape.StepS)
		}
		got, want := float64(slices.Max(simulated.MemoryBytes)/shape.Shape.Tensor), float64(slices.Max(shape.MemoryBytes))
		if over := got - want; over < 0 || over > 0.01*want+logits/float64(shape.Shape.Tensor)+float64(c.moment) {
			t.Errorf("%s: simulated %v bytes a device, as a shape %v", layout, got, want)
		}
		if pl.Stages[0].Recompute.String() != c.recompute || string(pl.Shard) != c.shard ||
			string(pl.Gradients) != c.gradients {
			t.Errorf("%s: the plan recomputes %v, divides %v, sums %v", layout, pl.Stages[0].Recompute, pl.Shard, pl.Gradients)
		}
		if why := strings.Join(pl.Why, "; "); !strings.Contains(why, "the simulator ") {
			t.Errorf("%s: it says %q", layout, why)
		}
	}
}
