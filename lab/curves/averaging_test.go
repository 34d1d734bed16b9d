package curves

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// Times.Contend plans pipelines with whole batches and pipelines that split a batch. It compares each rival with a
// setting that needs no more memory than the rival. For each way with several pipelines, it also adds the fastest
// setting without a memory limit. An iteration of a setting trains on Batches() batches.
func TestAveragingsContend(t *testing.T) {
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	const batch = 16
	p, err := profile.Analytic(m, map[string]cluster.DeviceType{"cpu": FlatDevice}, []int{1, 2, 4, 8, 16}, "sgd", 0)
	if err != nil {
		t.Fatal(err)
	}
	methods, err := ReadMethods([]string{"elastic:2", "elastic:2:split", "elastic:2:alpha=1"})
	if err != nil {
		t.Fatal(err)
	}
	w := &avgpipe.Workload{Profile: p, Cluster: cluster.Local("cpu", 2, 2, 0, 1e-9, 1e15, 1e15), Batch: batch}
	if w.Base, err = avgpipe.Partition(t.Context(), w, tune.Overrides{}); err != nil {
		t.Fatal(err)
	}
	c := &Times{}
	if err := c.Contend(t.Context(), w, 2, methods); err != nil {
		t.Fatal(err)
	}
	if len(c.Held) == 0 {
		t.Fatal("no rival")
	}
	for _, h := range c.Held {
		rival := c.Contested[h.Rival]
		if h.AvgPipe < 0 {
			continue
		}
		own := c.Contested[h.AvgPipe]
		if own.Policy != schedule.Elastic || slices.Max(own.Predicted) > slices.Max(rival.Predicted) {
			t.Errorf("%s, which holds %d bytes, is held to %d of %s", own.Name, own.Predicted, rival.Predicted, rival.Name)
		}
		if own.Pipelines > 1 && h.SmallestBytes > 0 {
			t.Errorf("%s fits, and %d bytes are the least that several need", own.Name, h.SmallestBytes)
		}
	}
	whole, split := 0, 0
	for i, one := range c.Contested {
		if slices.ContainsFunc(c.Contested[:i], func(o *contender) bool { return o.Name == one.Name }) {
			t.Errorf("%s contends twice", one.Name)
		}
		if one.Pipelines < 2 {
			continue
		}
		if one.Split {
			split++
		} else {
			whole++
		}
		if got := one.Plan.StepSamples(); got != one.Batches()*batch || one.Plan.Together() != one.Pipelines {
			t.Errorf("%s: an iteration of %d samples is %d batches of %d", one.Name, got, one.Batches(), batch)
		}
	}
	if whole == 0 || split == 0 {
		t.Errorf("%d settings with whole batches and %d that split them", whole, split)
	}
}
