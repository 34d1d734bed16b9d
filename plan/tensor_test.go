package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
)

// TestGroupsForMegatron has a plan of two stages, each with two replicas that are tensor-parallel groups of eight
// devices. The expected Megatron-LM flags were worked out by hand. The export for PyTorch refuses the plan.
func TestGroupsForMegatron(t *testing.T) {
	p := &plan.Plan{Version: 1, Model: "gpt", Planner: "shape", Schedule: "1f1b", Weights: "sync", Replication: "split",
		MicroBatch: 4, MicroBatches: 6, Precision: "bf16", Tensor: &plan.Tensor{Devices: 8, SequenceParallel: true},
		Stages: []plan.Stage{{LastLayer: 2, Devices: []int{0, 1}}, {FirstLayer: 3, LastLayer: 5, Devices: []int{2, 3}}}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	want := []string{"--pipeline-model-parallel-size 2", "--micro-batch-size 2", "--global-batch-size 24",
		"--tensor-model-parallel-size 8", "--sequence-parallel", "--bf16"}
	if got := p.MegatronFlags(); !slices.Equal(got, append(want, "--overlap-grad-reduce")) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, c := range []struct {
		again     plan.Recompute
		shard     plan.Shard
		gradients plan.Gradients
		want      []string
	}{
		{plan.Selective, plan.ZeRO1, "bucket=40MB", []string{"--recompute-granularity selective",
			"--use-distributed-optimizer", "--overlap-grad-reduce", "--ddp-bucket-size 10000000"}},
		{plan.Blocks, plan.ZeRO2, plan.GradientsOverlapped, []string{"--recompute-granularity full",
			"--recompute-method uniform", "--recompute-num-layers 1", "--use-megatron-fsdp",
			"--data-parallel-sharding-strategy optim_grads", "--use-distributed-optimizer",
			"--no-gradient-accumulation-fusion", "--overlap-grad-reduce"}},
		{plan.KeepAll, plan.ZeRO3, plan.GradientsOverlapped, []string{"--use-megatron-fsdp",
			"--data-parallel-sharding-strategy optim_grads_params", "--use-distributed-optimizer",
			"--no-gradient-accumulation-fusion", "--overlap-param-gather", "--overlap-grad-reduce"}},
		{plan.KeepAll, plan.ShardNothing, plan.GradientsBehind, nil},
	} {
		q := *p
		q.Stages = slices.Clone(p.Stages)
		q.Stages[0].Recompute, q.Stages[1].Recompute, q.Shard, q.Gradients = c.again, c.again, c.shard, c.gradients
		if got := q.MegatronFlags(); !slices.Equal(got, append(slices.Clone(want), c.want...)) {
			t.Errorf("%v, want %v and %v", got, want, c.want)
		}
		q.Tensor = nil
		if c.shard == plan.ShardNothing {
			continue
		}
		if _, err := q.SplitPoints([]string{"a", "b", "c", "d", "e", "f"}); err == nil ||
			!strings.Contains(err.Error(), "divide what they keep (shard "+string(c.shard)) {
			t.Errorf("PyTorch: %v", err)
		}
	}
	layers := []string{"embed", "block0.attention", "block0.mlp", "block1.attention", "block1.mlp", "head"}
	if layout, err := p.MegatronLayout(layers); err != nil || layout != "Et|tL" {
		t.Errorf("%s, %v", layout, err)
	}
	if _, err := p.SplitPoints(layers); err == nil || !strings.Contains(err.Error(), "groups of 8; PyTorch") {
		t.Errorf("PyTorch: %v", err)
	}
	p.Tensor.Devices = 1
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "a group has 2 to 64") {
		t.Errorf("a group of one: %v", err)
	}
	p.Tensor.Devices, p.Precision = 8, "f12"
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), `precision is "f12"; it is one of f32, tf32`) {
		t.Errorf("a precision that is none: %v", err)
	}
}
