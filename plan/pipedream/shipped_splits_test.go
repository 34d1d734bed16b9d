package pipedream_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/shared"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// shippedModel holds a model of PipeDream's runtime as its repository ships it, cut into stages.
type shippedModel struct {
	Model, Variant string
	Kinds          [][]string `json:"module_kinds"` // of each stage
	Confs          map[string]struct {
		Ranks map[string][]int `json:"stage_to_rank_map"`
	}
}

// TestAnswersAsShipped checks that the published formula gives the stages that the published repository ships. It uses
// the files that say with which version and bandwidths they were made. It compares the kinds of modules and the number
// of ranks of each stage. It leaves out Dropout, which takes no time and so may be on either side of a cut by chance.
func TestAnswersAsShipped(t *testing.T) {
	planner, err := plan.LookupPlanner("pipedream")
	if err != nil {
		t.Fatal(err)
	}
	const readme = 1e9 // bytes/s, the bandwidth in the only example of the optimizer's README
	for _, c := range []struct {
		model, variant, file string
		batch                int
		sizes                []int
		bandwidths           []float64
		set                  string
	}{
		{"vgg16", "gpus=4", "pipedream-vgg16.txt", 128, []int{4}, []float64{readme}, "activation_compression_ratio=1"},
		{"vgg16", "gpus=8", "pipedream-vgg16.txt", 128, []int{8}, []float64{readme},
			"activation_compression_ratio=none overlap=max"},
		{"vgg16", "gpus=16", "pipedream-vgg16.txt", 128, []int{16}, []float64{1.25e9},
			"activation_compression_ratio=1 overlap=max"},
		{"alexnet", "gpus=4", "pipedream-alexnet.txt", 256, []int{4}, []float64{readme},
			"activation_compression_ratio=1"},
		{"resnet50", "gpus=4", "pipedream-resnet50.txt", 128, []int{4}, []float64{6e9},
			"activation_compression_ratio=1"},
		{"resnet50", "gpus=16", "pipedream-resnet50.txt", 128, []int{4, 4}, []float64{6e9, 1.25e9},
			"activation_compression_ratio=1"},
	} {
		t.Run(c.model+"/"+c.variant, func(t *testing.T) {
			var want shippedModel
			for _, file := range shared.Oracles[struct{ Models []shippedModel }](t,
				"reference_pipedream_runtime_confs") {
				i := slices.IndexFunc(file.Models, func(m shippedModel) bool {
					return m.Model == c.model && m.Variant == c.variant
				})
				if i < 0 {
					t.Fatal("it is not shipped")
				}
				want = file.Models[i]
			}
			p := plantest.ReadProfile(t, c.file, c.batch)
			pl, err := planner.Plan(t.Context(), plan.Request{Profile: p, Cluster: levels(c.sizes, c.bandwidths),
				Batch: c.batch, Formula: "artifact", Set: plantest.Set(c.set)})
			if err != nil {
				t.Fatal(err)
			}
			ordered, err := p.Ordered(pl.Order)
			if err != nil {
				t.Fatal(err)
			}
			ranks := want.Confs["hybrid_conf.json"].Ranks
			if len(pl.Stages) != len(want.Kinds) || len(pl.Stages) != len(ranks) {
				t.Fatalf("%d stages; shipped are %d on %v", len(pl.Stages), len(want.Kinds), ranks)
			}
			for i, st := range pl.Stages {
				if shipped := ranks[string(rune('0'+i))]; len(shipped) != len(st.Devices) {
					t.Errorf("stage %d on devices %v; shipped on %v", i, st.Devices, shipped)
				}
				var have []string
				for _, l := range ordered.Layers[st.FirstLayer : st.LastLayer+1] {
					kind, _, _ := strings.Cut(l.Kind, "(")
					have = append(have, kind)
				}
				if a, b := modules(have), modules(want.Kinds[i]); !slices.Equal(a, b) {
					t.Errorf("stage %d is %v; shipped is %v", i, a, b)
				}
			}
		})
	}
}

// modules returns the kinds of a stage's modules, sorted, without Dropout and operations that are not modules.
func modules(kinds []string) []string {
	var out []string
	for _, k := range kinds {
		if !slices.Contains([]string{"Dropout", "Size", "View", "Add"}, k) {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}
