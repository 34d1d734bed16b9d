package shape_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/tune/shape"
)

// TestBestIsTheFirstOfAll: Best returns the first of Run's results. The sweeps include pipelines, chunks, split
// backwards and shapes that do not fit.
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

// TestRankBeginsAsAllDo: Rank's first shape is Run's first, and its shapes are in Run's order, even if Rank leaves out
// most shapes. The ranked shapes and those left out are together at least as many as Run's.
func TestRankBeginsAsAllDo(t *testing.T) {
	m := gpt(t, 24, 2048, 16, 1024, 51200)
	c := machines(2)
	d := c.DeviceTypes["a100"]
	d.MemoryBytes = 24e9
	c.DeviceTypes["a100"] = d
	w := shape.Sweep{Base: shape.Shape{Batch: 64, Precision: "f16", States: 2}, Replicas: []int{0},
		Stages: []int{1, 2, 4, 8}, Tensors: []int{1, 2}, MicroBatches: []int{1, 2, 4, 8}, Chunks: []int{1, 2, 3},
		Recomputes: []string{"none", "full"}}
	all, err := shape.Run(m, c, w)
	if err != nil {
		t.Fatal(err)
	}
	order := map[string]int{}
	for i, p := range all {
		order[p.Shape.String()] = i
	}
	for _, most := range []int{0, 1, 10, 1000} {
		found, others, err := shape.Rank(m, c, most, w)
		if err != nil {
			t.Fatal(err)
		}
		if len(found)+others.Count < len(all) || found[0].Shape.String() != all[0].Shape.String() {
			t.Errorf("%d and %d others of %d, the first is %v, want %v", len(found), others.Count, len(all), found[0].Shape,
				all[0].Shape)
		}
		if !slices.IsSortedFunc(found, func(a, b *shape.Prediction) int {
			return order[a.Shape.String()] - order[b.Shape.String()]
		}) {
			t.Errorf("of %d: not in the order of all", most)
		}
		if most == 1000 && (others.Count != 0 || len(found) != len(all)) || most == 10 && len(found) > 16 {
			t.Errorf("of %d: %d shapes, %d others", most, len(found), others.Count)
		}
	}
}

// TestWideOfFewBlocks: a model of one block gets one stage only. Without sweeps, Rank returns ErrNothing.
func TestWideOfFewBlocks(t *testing.T) {
	few := (shape.Sweep{Base: shape.Shape{Batch: 4}, Tensors: []int{1}}).Wide(gpt(t, 1, 512, 8, 128, 1024), machines(1))
	if len(few) != 1 || few[0].Stages[0] != 1 || !slices.Equal(few[0].MicroBatches, []int{1, 2, 4}) {
		t.Errorf("of one block: %+v", few)
	}
	if _, _, err := shape.Rank(gpt(t, 1, 512, 8, 128, 1024), machines(1), 5); !errors.Is(err, shape.ErrNothing) {
		t.Errorf("of no sweeps: %v", err)
	}
}

// TestWideHasTheChunksOfItsSchedule: a schedule with two chunks on each device has two in Wide, even if they do not
// divide the blocks. One stage has one chunk.
func TestWideHasTheChunksOfItsSchedule(t *testing.T) {
	m := gpt(t, 12, 512, 8, 128, 1024)
	w := shape.Sweep{Base: shape.Shape{Batch: 16, Schedule: "zb-v", Precision: "f16"}, Stages: []int{1, 4},
		Tensors: []int{1}, MicroBatches: []int{1}, Recomputes: []string{"none"}}
	wide := w.Wide(m, machines(1))
	if len(wide) != 2 || !slices.Equal(wide[0].Chunks, []int{1}) || !slices.Equal(wide[1].Chunks, []int{2}) {
		t.Fatalf("%+v", wide)
	}
	if p, err := shape.Best(m, machines(1), wide[1]); err != nil || p.Shape.Chunks != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestWideHasPublishedShapes: Wide must try published shapes. For a model of 96 blocks that is GPT-3's shape: 16 stages
// of 3 chunks, groups of 8, 1 sample at a time (Narayanan et al., SC 2021, section 5.1). For 105 blocks it is the shape
// of the 530B model: 35 stages of 3 chunks. Given settings are kept.
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

// If no shape is possible, the error names a cause that holds for every division of the batch: an unknown word, devices
// of several types, or devices without kernels.
func TestWhyNoShapeIsPossible(t *testing.T) {
	m := gpt(t, 8, 512, 8, 128, 1024)
	for want, change := range map[string]func(c *cluster.Cluster, w *shape.Sweep){
		`shard is "zero9"`:   func(_ *cluster.Cluster, w *shape.Sweep) { w.Shards = []string{"zero1", "zero9"} },
		`recompute is "all"`: func(_ *cluster.Cluster, w *shape.Sweep) { w.Recomputes = []string{"none", "all"} },
		`precision is "f17"`: func(_ *cluster.Cluster, w *shape.Sweep) { w.Base.Precision = "f17" },
		"a100 has no kernels": func(c *cluster.Cluster, _ *shape.Sweep) {
			d := c.DeviceTypes["a100"]
			d.Kernels = nil
			c.DeviceTypes["a100"] = d
		},
		"shapes are of one": func(c *cluster.Cluster, w *shape.Sweep) {
			c.DeviceTypes["other"] = c.DeviceTypes["a100"]
			c.Devices[len(c.Devices)-1] = "other"
			w.Stages, w.Replicas = []int{2, 4}, []int{0}
		},
	} {
		c, w := machines(1), shape.Sweep{Base: shape.Shape{Batch: 64}}
		change(c, &w)
		if _, _, err := shape.Rank(m, c, 5, w.Wide(m, c)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
