package shape_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/tune/shape"
)

// Best returns the first of Run's results. The sweeps include pipelines, chunks, split backwards and shapes that do
// not fit.
func TestBestIsTheFirstOfAll(t *testing.T) {
	m := gpt(t, 24, 2048, 16, 1024, 51200)
	c := machines(2)
	for _, memory := range []int64{0, 60e9, 12e9} {
		d := c.DeviceTypes["a100"]
		d.MemoryBytes = memory
		c.DeviceTypes["a100"] = d
		for name, base := range map[string]shape.Shape{
			"1f1b":    {Batch: 64, Precision: "f16", States: 2},
			"behind":  {Batch: 64, Precision: "f16", States: 2, Behind: true, SequenceParallel: false, Shard: "zero1"},
			"zb-h1":   {Batch: 32, Precision: "f16", States: 2, Schedule: "zb-h1"},
			"no wait": {Batch: 32, Precision: "f16", States: 2, Schedule: "zb-v", Chunks: 2, NoFlush: true},
			"afab":    {Batch: 32, Precision: "bf16", States: 2, Schedule: "afab"},
		} {
			w := shape.Sweep{Base: base, Replicas: []int{0}, Stages: []int{2, 4, 8}, Tensors: []int{1, 2},
				MicroBatches: []int{1, 2, 4, 8}, Recomputes: []string{"none", "full"}}
			if base.Schedule == "" {
				w.Stages, w.Chunks = []int{1, 2, 4, 8}, []int{1, 2, 3}
			}
			all, err := shape.Run(m, c, w)
			if err != nil {
				t.Fatal(name, err)
			}
			got, err := shape.Best(m, c, w)
			switch {
			case !all[0].Fits && !errors.Is(err, shape.ErrNothing):
				t.Errorf("%s, %d bytes: %v, want %v", name, memory, err, shape.ErrNothing)
			case all[0].Fits && err != nil:
				t.Errorf("%s, %d bytes: %v", name, memory, err)
			case all[0].Fits && got.StepS != all[0].StepS:
				t.Errorf("%s, %d bytes: %v of %v s, want %v of %v s", name, memory, got.Shape, got.StepS, all[0].Shape,
					all[0].StepS)
			}
		}
	}
}

// Wide must try published shapes. For a model of 96 blocks that is GPT-3's: 16 stages of 3 chunks, groups of 8, 1
// sample at a time (Narayanan et al., SC 2021, section 5.1). For 105 blocks it is that of the 530B model: 35 stages
// of 3 chunks. Given settings are kept.
func TestWideHasPublishedShapes(t *testing.T) {
	for blocks, p := range map[int]int{96: 16, 105: 35} {
		m := gpt(t, blocks, 512, 8, 128, 1024)
		c := machines(315)
		found := false
		for _, w := range (shape.Sweep{Base: shape.Shape{Batch: 2520}, Recomputes: []string{"full"}}).Wide(m, c) {
			found = found || slices.Equal(w.Stages, []int{p}) && slices.Contains(w.Chunks, 3) &&
				slices.Contains(w.Tensors, 8) && slices.Contains(w.MicroBatches, 1) && len(w.Recomputes) == 1
			if len(w.Stages) != 1 || w.Stages[0] == 1 && !slices.Equal(w.Chunks, []int{1}) {
				t.Errorf("%+v", w)
			}
		}
		if !found {
			t.Errorf("%d blocks: not among what is tried", blocks)
		}
	}
	given := shape.Sweep{Base: shape.Shape{Batch: 64}, Stages: []int{5}, Chunks: []int{2}, Tensors: []int{1},
		MicroBatches: []int{3}}.Wide(gpt(t, 8, 512, 8, 128, 1024), machines(1))
	if len(given) != 1 || !slices.Equal(given[0].Chunks, []int{2}) || !slices.Equal(given[0].MicroBatches, []int{3}) {
		t.Errorf("%+v", given)
	}
}
