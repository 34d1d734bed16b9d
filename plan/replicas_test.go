package plan

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestWordsOfReplicas: plan files keep the words for what replicas shard and for when they sum gradients. An unknown
// word is refused with an error that names it.
func TestWordsOfReplicas(t *testing.T) {
	p := Plan{Version: Version, Model: "m", Cluster: "c", Planner: "auto", Schedule: "dp", Weights: "sync",
		Replication: "round_robin", MicroBatch: 1, MicroBatches: 2, Stages: []Stage{{LastLayer: 1, Devices: []int{0, 1}}}}
	for _, shard := range []Shard{ShardNothing, ZeRO1, ZeRO2, ZeRO3} {
		for gradients, bucket := range map[Gradients]int64{GradientsOverlapped: 0, GradientsBehind: 0,
			"bucket=25MB": 25e6, "bucket=1MiB": 1 << 20} {
			p.Shard, p.Gradients = shard, gradients
			text, err := json.Marshal(&p)
			if err != nil {
				t.Fatal(err)
			}
			var got Plan
			if err := json.Unmarshal(text, &got); err != nil || got.Shard != shard || got.Gradients != gradients ||
				got.Gradients.BucketBytes() != bucket {
				t.Errorf("%s: %v, %v, %d bytes at once, %v", text, got.Shard, got.Gradients, got.Gradients.BucketBytes(), err)
			}
			err = p.Validate()
			if ignored := shard.Gradients() && gradients != GradientsOverlapped; ignored {
				want := "gradients is " + string(gradients) + " for shard " + string(shard)
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %s", err, want)
				}
			} else if err != nil {
				t.Error(err)
			}
			only := p.PlansOnly()
			if alone := shard != ShardNothing || gradients == GradientsBehind; (only != "") != alone {
				t.Errorf("%v, %v: %q", shard, gradients, only)
			}
		}
	}
	for text, want := range map[string]string{
		`{"shard": "zero4"}`: "zero3", `{"shard": 3}`: "number", `{"gradients": "bucket=0B"}`: "bucket=25MB",
		`{"gradients": "late"}`: "overlapped, behind, or bucket=", `{"gradients": "bucket=many"}`: "bucket=many",
	} {
		var got Plan
		if err := json.Unmarshal([]byte(text), &got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	p.Weights = "stash"
	for p.Shard, p.Gradients = ZeRO1, GradientsOverlapped; ; p.Shard, p.Gradients = ShardNothing, GradientsBehind {
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), `for weights "stash"`) {
			t.Errorf("%v, %v: %v", p.Shard, p.Gradients, err)
		}
		if p.Gradients == GradientsBehind {
			break
		}
	}
	p = Plan{Stages: []Stage{{}, {Recompute: Blocks}}}
	if only := p.PlansOnly(); only != "stage 1 recomputes blocks" {
		t.Errorf("%q", only)
	}
	p.Stages[1].Recompute = KeepInput
	if only := p.PlansOnly(); only != "" {
		t.Errorf("%q", only)
	}
}
