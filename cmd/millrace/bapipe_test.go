package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/bound"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// TestBoardsFromProfileToPlan: one verb makes a profile of boards with weights on the chip, and another plans with it.
// The plan's schedule is FBP-AS, as BaPipe chooses (§4.3), or 1F1B-AS if asked for.
func TestBoardsFromProfileToPlan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "boards.json")
	if out, errs, code := ran(t, "profile", "resnet50", "--cluster", "bapipe-4xvcu129", "--on-chip", "--batch", "128",
		"--sizes", "1", "-o", file); code != 0 {
		t.Fatal(out, errs)
	}
	p, err := profile.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range p.Layers {
		b := l.Costs[0].Board
		if b == nil || !b.OnChip || b.ForwardMemoryS != 0 || b.PairedS > l.Costs[0].ForwardS+l.Costs[0].BackwardS+1e-18 {
			t.Fatalf("layer %s: %+v", l.Name, b)
		}
	}
	c, err := cluster.Preset("bapipe-4xvcu129")
	if err != nil {
		t.Fatal(err)
	}
	least := bound.Step(p, c, bound.Kind{Workers: 4, Batch: 128, Sizes: []int{1}})
	took := map[string]float64{}
	for _, schedule := range []string{"auto", "1F1B-AS"} {
		pl := planned(t, "plan", "--model", "resnet50", "--cluster", "bapipe-4xvcu129", "--profile", file, "--batch", "128",
			"--planner", "bapipe", "--set", "dp=off", "--set", "chains=1", "--set", "schedule="+schedule)
		took[pl.Schedule] = pl.Objective.Value
		// The planner's formula leaves out the update.
		if more := pl.Predicted.StepS/pl.Objective.Value - 1; math.Abs(more) > .02 {
			t.Errorf("%s: %v s by the formula, %v s simulated", schedule, pl.Objective.Value, pl.Predicted.StepS)
		}
		if pl.Predicted.StepS < least {
			t.Errorf("%s: %v s simulated, and no plan is said to beat %v", schedule, pl.Predicted.StepS, least)
		}
	}
	if fbp, alone := took["fbp-as"], took["1f1b-as"]; !(fbp > 0 && fbp < alone) || least < .9*fbp {
		t.Errorf("FBP-AS takes %v s and 1F1B-AS %v; no plan is said to beat %v", fbp, alone, least)
	}
	for _, wrong := range []string{"--board lanes=some", "--board colour=red", "--board model=guess"} {
		args := append([]string{"profile", "resnet50", "--cluster", "bapipe-4xvcu129"}, strings.Fields(wrong)...)
		if _, errs, code := ran(t, args...); code != 2 || !strings.Contains(errs, "lanes") {
			t.Errorf("%s: exit %d, %s", wrong, code, errs)
		}
	}
	if _, errs, code := ran(t, "profile", "mlp", "--on-chip"); code != 2 || !strings.Contains(errs, "--cluster") {
		t.Errorf("--on-chip without boards: exit %d, %s", code, errs)
	}
}

// planned returns the plan that a command writes.
func planned(t *testing.T, args ...string) *plan.Plan {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.json")
	if out, errs, code := ran(t, append(args, "-o", file)...); code != 0 {
		t.Fatalf("%v: exit %d\n%s%s", args, code, out, errs)
	}
	pl, err := plan.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

// TestTwoMeasuredTypesArePlannedAsOne: the profiles of an mlp that was measured with and without AVX2 are joined.
// BaPipe's plan over two hosts of each type must be as fast as the best that brute force finds from the two files.
// Brute force tries every order of the types and every cut. With free links, both schedules of Table II take
// (M+N-1)(F+B), with M micro-batches, N stages, and the forward time F and backward time B of the slowest stage.
func TestTwoMeasuredTypesArePlannedAsOne(t *testing.T) {
	dir := t.TempDir()
	both, hosts := filepath.Join(dir, "both.json"), filepath.Join(dir, "hosts.yaml")
	files := map[string]string{"fast": "testdata/profiles/mlp-avx.json", "slow": "testdata/profiles/mlp-sse.json"}
	if out, errs, code := ran(t, "profile", "join", "fast="+files["fast"], "slow="+files["slow"], "-o", both); code != 0 {
		t.Fatal(out, errs)
	}
	write(t, hosts, "name: mixed\ndevice_types: {fast: {}, slow: {}}\nnodes: [{devices: [slow, fast, fast, slow]}]\n"+
		"levels:\n  - {name: host, size: 4, bandwidth: 1000TB/s, latency: 0s}\n")
	const M, N = 4, 4
	pl := planned(t, "plan", "--model", "mlp", "--set", "hidden=256,256,256,256", "--cluster", hosts, "--profile", both,
		"--batch", "32", "--micro-batch", "8", "--planner", "bapipe", "--set", "dp=off", "--set", "chains=1",
		"--set", "fractions=off", "--set", "order=search")

	costs := map[string][]float64{} // forward and backward of 8 samples, by layer
	for kind, file := range files {
		var read struct {
			Layers []struct {
				Costs []struct {
					MicroBatch int     `json:"micro_batch"`
					ForwardS   float64 `json:"forward_s"`
					BackwardS  float64 `json:"backward_s"`
				} `json:"costs"`
			} `json:"layers"`
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &read)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range read.Layers {
			for _, c := range l.Costs {
				if c.MicroBatch == 8 {
					costs[kind] = append(costs[kind], c.ForwardS+c.BackwardS)
				}
			}
		}
	}
	layers := len(costs["fast"])
	least := math.Inf(1)
	for _, order := range [][]string{{"fast", "fast", "slow", "slow"}, {"fast", "slow", "fast", "slow"},
		{"fast", "slow", "slow", "fast"}, {"slow", "fast", "fast", "slow"}, {"slow", "fast", "slow", "fast"},
		{"slow", "slow", "fast", "fast"}} {
		plantest.EverySplit(layers, N, func(cuts []int) {
			longest, from := 0.0, 0
			for i, kind := range order {
				to := layers
				if i < N-1 {
					to = cuts[i]
				}
				stage := 0.0
				for _, c := range costs[kind][from:to] {
					stage += c
				}
				longest, from = max(longest, stage), to
			}
			least = min(least, (M+N-1)*longest)
		})
	}
	if math.Abs(pl.Objective.Value/least-1) > 1e-6 {
		t.Errorf("BaPipe's plan takes %v s, brute force finds %v: %+v", pl.Objective.Value, least, pl.Stages)
	}
	given := map[int]bool{}
	for _, st := range pl.Stages {
		given[st.Devices[0]] = true
	}
	if len(pl.Stages) != N || len(given) != N || pl.Predicted.StepS < least*(1-1e-9) {
		t.Errorf("%d stages on %v, predicted %v s", len(pl.Stages), given, pl.Predicted.StepS)
	}
}

// TestChainsTrain: two parallel chains of two stages end with the same weights as one worker, up to the rounding of
// sums in another order. The plan says that there are two chains.
func TestChainsTrain(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	out := p.Run(t, strings.Fields("plan --model mlp --profile mlp.json --workers 4 --batch 16 --micro-batch 4 "+
		"--planner bapipe --set chains=2 --set dp=off -o chains.json"), false)
	if !strings.Contains(out, "2 chains of 2 devices side by side") {
		t.Errorf("the plan says\n%s", out)
	}
	pl, err := plan.Read(filepath.Join(p.Dir, "chains.json"))
	if err != nil {
		t.Fatal(err)
	}
	for s, st := range pl.Stages {
		if !slices.Equal(st.Devices, []int{s, s + 2}) {
			t.Errorf("stage %d is on %v", s, st.Devices)
		}
	}
	const steps = "train --model mlp --data digits --profile mlp.json --batch 16 --steps 5 --save-every 5 "
	for _, args := range []string{"--plan chains.json --workers 4 --out chains",
		"--workers 1 --micro-batches 4 --out one"} {
		if out := p.Run(t, strings.Fields(steps+args), false); strings.Contains(out, "exit") {
			t.Fatal(out)
		}
	}
	var of [2]*checkpoint.Checkpoint
	for i, run := range []string{"chains/checkpoints", "one/checkpoints"} {
		c, err := checkpoint.Open(filepath.Join(p.Dir, run))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		of[i] = c
	}
	for _, name := range of[0].Names() {
		x, err := of[0].Tensor(name)
		y, errY := of[1].Tensor(name)
		if err != nil || errY != nil || len(x.Data) != len(y.Data) {
			t.Fatal(name, err, errY)
		}
		if off := furthest(x.Data, y.Data); off > 1e-6 {
			t.Errorf("%s is up to %v off", name, off)
		}
	}
}

// furthest returns the largest difference of two tensors of 32-bit numbers.
func furthest(x, y []byte) float64 {
	number := func(b []byte, i int) float64 {
		bits := uint32(0)
		for k := range 4 {
			bits |= uint32(b[4*i+k]) << (8 * k)
		}
		return float64(math.Float32frombits(bits))
	}
	most := 0.0
	for i := range len(x) / 4 {
		most = max(most, math.Abs(number(x, i)-number(y, i)))
	}
	return most
}
