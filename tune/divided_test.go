package tune

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// TestSearchesDivideWhatReplicasKeep: four replicas of a transformer need more than 1400 MiB each, and less with
// sharding. A search with sharding finds data parallelism that fits. The search has no lower bound for this plan, and
// the plan records the sharding. Estimates count memory as the simulator does, so no plan that fits is skipped.
func TestSearchesDivideWhatReplicasKeep(t *testing.T) {
	m, err := model.Build("gpt", map[string]any{"layers": 12, "width": 768, "heads": 12, "context": 256,
		"vocabulary": 8192})
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Read("dgx-a100")
	if err == nil {
		c, err = c.First(4)
	}
	if err != nil {
		t.Fatal(err)
	}
	c = c.Limited(1400 << 20)
	p, err := profile.Analyze(m, c.DeviceTypes, profile.Analysis{Sizes: []int{1, 2, 4}, Optimizer: "adam", States: 2,
		Precision: "bf16"})
	if err != nil {
		t.Fatal(err)
	}
	r := Request{Profile: p, Cluster: c, Batch: 16, Longest: time.Hour, Fix: Overrides{Stages: 1, MicroBatch: 1}}
	var memory *MemoryError
	if _, err := Search(context.Background(), r); !errors.As(err, &memory) {
		t.Fatalf("without dividing anything: %v, want a refusal for memory", err)
	}
	var peaks []int64
	for _, shard := range []plan.Shard{plan.ZeRO1, plan.ZeRO2, plan.ZeRO3} {
		when := plan.GradientsOverlapped
		if !shard.Gradients() {
			when = plan.GradientsBehind
		}
		r.Fix.Shard, r.Fix.Gradients = shard, when
		found, err := Search(context.Background(), r)
		if err != nil {
			t.Fatalf("%v: %v", shard, err)
		}
		best := found.Best
		if best.Shard != shard || best.Gradients != when || best.LowerBound != nil ||
			len(best.Stages[0].Devices) != 4 {
			t.Errorf("%v: %v of %d replicas, gradients %v, bound %v", shard, best.Shard, len(best.Stages[0].Devices),
				best.Gradients, best.LowerBound)
		}
		peaks = append(peaks, slices.Max(best.Predicted.MemoryBytes))
	}
	if slices.Max(peaks) > 1400<<20 || !(peaks[0] > peaks[1] && peaks[1] > peaks[2]) {
		t.Errorf("peaks %v; they fall, below the limit", peaks)
	}
	for _, shard := range []plan.Shard{plan.ZeRO2, plan.ZeRO3} {
		r.Fix.Shard, r.Fix.Gradients = shard, "bucket=25MB"
		_, err := Search(context.Background(), r)
		var setting *SettingError
		if !errors.As(err, &setting) || setting.Key != "gradients" ||
			!strings.Contains(err.Error(), "bucket=25MB for shard "+string(shard)) {
			t.Errorf("sums of %v: %v", shard, err)
		}
	}
	r.Runnable = true
	for key, fix := range map[string]Overrides{"shard": {Shard: plan.ZeRO1}, "gradients": {Gradients: "behind"},
		"recompute": {Recompute: "blocks"}} {
		r.Fix = fix
		_, err := Search(context.Background(), r)
		var setting *SettingError
		if !errors.As(err, &setting) || setting.Key != key || !strings.Contains(err.Error(), "not executed here") {
			t.Errorf("%s on this machine: %v", key, err)
		}
	}
}
