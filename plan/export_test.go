package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// gpt returns the names of a transformer's layers.
func gpt(blocks int) []string {
	names := []string{"embed"}
	for b := 1; b <= blocks; b++ {
		names = append(names, fmt.Sprintf("block%d.attention", b), fmt.Sprintf("block%d.mlp", b))
	}
	return append(names, "norm", "head", "loss")
}

// cutPlan returns a synchronous plan whose stages begin at layer 0 and at each cut.
func cutPlan(layers int, cuts ...int) *Plan {
	p := &Plan{Version: Version, Replication: "split", MicroBatch: 1, MicroBatches: 4, Schedule: "1f1b",
		Weights: "sync"}
	first := 0
	for i, end := range append(slices.Clone(cuts), layers) {
		p.Stages = append(p.Stages, Stage{FirstLayer: first, LastLayer: end - 1, Devices: []int{i}})
		first = end
	}
	return p
}

func TestExports(t *testing.T) {
	names := gpt(4) // 12 layers
	p := cutPlan(len(names), 5, 9)
	points, err := p.SplitPoints(names)
	if err != nil || !slices.Equal(points, []string{"block3.attention", "norm"}) {
		t.Errorf("split points %v, %v", points, err)
	}
	parts, err := p.DeepSpeedParts()
	if err != nil || !slices.Equal(parts, []int{0, 5, 9, 12}) {
		t.Errorf("parts %v, %v", parts, err)
	}
	layout, err := p.MegatronLayout(names)
	if err != nil || layout != "Et*2|t*2|L" {
		t.Errorf("layout %s, %v", layout, err)
	}
}

// stagesOf reads the stages of a layout by the rules of Megatron-LM's guide.
func stagesOf(t *rapid.T, layout string) []string {
	var out []string
	for stage := range strings.SplitSeq(layout, "|") {
		text := ""
		for i := 0; i < len(stage); i++ {
			end := i + 1
			if end < len(stage) && stage[end] == '*' {
				for end++; end < len(stage) && stage[end] >= '0' && stage[end] <= '9'; end++ {
				}
				n, err := strconv.Atoi(stage[i+2 : end])
				if err != nil {
					t.Fatal(err)
				}
				text += strings.Repeat(stage[i:i+1], n)
			} else {
				text += stage[i:end]
			}
			i = end - 1
		}
		out = append(out, text)
	}
	return out
}

// cutBetweenBlocks draws a transformer: its number of blocks, its layers' names, and cuts before blocks or before the
// norm after the last block.
func cutBetweenBlocks(t *rapid.T) (blocks int, names []string, cuts []int) {
	blocks = rapid.IntRange(1, 12).Draw(t, "blocks")
	for b := 0; b <= blocks; b++ {
		if rapid.Bool().Draw(t, "cut") {
			cuts = append(cuts, 1+2*b)
		}
	}
	return blocks, gpt(blocks), cuts
}

func TestMegatronLayoutSaysTheStages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks, names, cuts := cutBetweenBlocks(t)
		p := cutPlan(len(names), cuts...)
		layout, err := p.MegatronLayout(names)
		if err != nil {
			t.Fatal(err)
		}
		whole := "E" + strings.Repeat("t", blocks) + "L"
		at := 0
		for i, stage := range stagesOf(t, layout) {
			end := len(whole)
			if i < len(cuts) {
				end = 1 + (cuts[i]-1)/2
			}
			if stage != whole[at:end] {
				t.Fatalf("%s: stage %d is %q, want %q", layout, i, stage, whole[at:end])
			}
			at = end
		}
	})
}

func TestExportsRefuse(t *testing.T) {
	names := gpt(4)
	for want, change := range map[string]func(*Plan){
		"stage 1 has 2 replicas and stage 0 has 1": func(p *Plan) { p.Stages[1].Devices = []int{1, 2} },
		"take micro-batches in turn": func(p *Plan) {
			p.Stages[0].Devices, p.Stages[1].Devices, p.Replication = []int{0, 1}, []int{2, 3}, "round_robin"
		},
		"stage 0 computes a fraction of a layer":   func(p *Plan) { p.Stages[0].LastFraction = 0.5 },
		"weights are stash":                        func(p *Plan) { p.Weights = "stash" },
		"layer 1 at position 0 of its own order":   func(p *Plan) { p.Order = []int{1, 0} },
		"recompute is stage for stage 1 and none":  func(p *Plan) { p.Stages[1].Recompute = KeepInput },
		"ends with layer 10; the model has 12":     func(p *Plan) { p.Stages[1].LastLayer-- },
		"begins with block3.mlp, inside a transfo": func(p *Plan) { p.Stages[0].LastLayer++; p.Stages[1].FirstLayer++ },
		"begins with head, inside the loss": func(p *Plan) {
			p.Stages[0].LastLayer, p.Stages[1].FirstLayer = 9,
				10
		},
	} {
		p := cutPlan(len(names), 5)
		change(p)
		if _, err := p.MegatronLayout(names); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, names := range [][]string{{"conv1", "dense", "loss"}, {"embed", "block1.mlp", "pool", "block2.mlp", "loss"},
		{"embed", "block1.mlp"}} {
		if _, err := cutPlan(len(names), 1).MegatronLayout(names); err == nil ||
			!strings.Contains(err.Error(), "cannot be written for Megatron-LM") {
			t.Errorf("%v: %v", names, err)
		}
	}
}
