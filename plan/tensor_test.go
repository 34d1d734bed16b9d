package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
)

// Two stages of two replicas of groups of eight, by hand: what Megatron-LM is told, and who else is refused.
func TestGroupsForMegatron(t *testing.T) {
	p := &plan.Plan{Version: 1, Model: "gpt", Planner: "shape", Schedule: "1f1b", Weights: "sync", Replication: "split",
		MicroBatch: 4, MicroBatches: 6, Precision: "bf16", Tensor: &plan.Tensor{Devices: 8, SequenceParallel: true},
		Stages: []plan.Stage{{LastLayer: 2, Devices: []int{0, 1}}, {FirstLayer: 3, LastLayer: 5, Devices: []int{2, 3}}}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	want := []string{"--pipeline-model-parallel-size 2", "--micro-batch-size 2", "--global-batch-size 24",
		"--tensor-model-parallel-size 8", "--sequence-parallel", "--bf16"}
	if got := p.MegatronFlags(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
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
