package plan

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestRecomputeHasATextForm(t *testing.T) {
	for text, want := range map[string]Recompute{
		`"none"`: KeepAll, `"stage"`: KeepInput, `"every 1"`: Every(1), `"every 12"`: Every(12), `"every:3"`: Every(3),
		`false`: KeepAll, `true`: KeepInput, `"blocks"`: Blocks, `"selective"`: Selective,
	} {
		var got Recompute
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is read as %v, %v; want %v", text, got, err, want)
		}
		out, err := json.Marshal(want)
		var again Recompute
		if err != nil || json.Unmarshal(out, &again) != nil || again != want {
			t.Errorf("%v is written as %s and read as %v, %v", want, out, again, err)
		}
	}
	for _, text := range []string{`"every"`, `"every 0"`, `"every -1"`, `"every 1.5"`, `"all"`, `""`, `2`, `null1`,
		`"every 99999999999"`, `[]`} {
		var got Recompute
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s is read as %v", text, got)
		}
	}
	if _, err := ParseRecompute("often"); err == nil || !strings.Contains(err.Error(), `every 2`) {
		t.Errorf("%v does not say what would be right", err)
	}
}

// TestRecomputeSegments checks the length of segments in a stage of 5 layers.
func TestRecomputeSegments(t *testing.T) {
	for r, want := range map[Recompute]int{KeepAll: 0, KeepInput: 5, Every(1): 1, Every(2): 2, Every(5): 5,
		Every(9): 5, Blocks: 0, Selective: 0} {
		if got := r.Segment(5); got != want {
			t.Errorf("%v: %d layers at a time, want %d", r, got, want)
		}
	}
}

// TestRecomputedRuns: Blocks makes one run of the layers of each block, found by names like block7.mlp. It makes no run
// for an embedding or a head.
func TestRecomputedRuns(t *testing.T) {
	names := []string{"embed", "block0.attention", "block0.mlp", "block1.attention", "block1.mlp", "norm", "head"}
	name := func(at int) string { return names[at] }
	for r, want := range map[Recompute][][2]int{
		KeepAll: nil, Selective: nil, KeepInput: {{0, 7}}, Every(3): {{0, 3}, {3, 6}, {6, 7}}, Blocks: {{1, 3}, {3, 5}},
	} {
		if got := r.Segments(len(names), name); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", r, got, want)
		}
	}
	// This stage begins inside a block and has only blocks.
	inside := func(at int) string { return names[at+2] }
	if got := Blocks.Segments(3, inside); !slices.Equal(got, [][2]int{{0, 1}, {1, 3}}) {
		t.Errorf("layers 2 to 4: %v", got)
	}
	for layer, want := range map[string]string{"block7.mlp": "block7", "h12.attn.out": "h12", "embed": "", "conv1": "",
		"12.x": "", "layer.mlp": ""} {
		if got := BlockOf(layer); got != want {
			t.Errorf("%s is of %q, want %q", layer, got, want)
		}
	}
}

// FuzzParseRecompute: text that can be parsed keeps its meaning when it is written and parsed again, in JSON too.
func FuzzParseRecompute(f *testing.F) {
	for _, text := range []string{"none", "stage", "every 2", "every:3", "every 0", "every +4", "every"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRecompute(text)
		if err != nil {
			return
		}
		if again, err := ParseRecompute(r.String()); err != nil || again != r {
			t.Errorf("%q is %v, written as %q and read as %v, %v", text, r, r.String(), again, err)
		}
		written, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var read Recompute
		if err := json.Unmarshal(written, &read); err != nil || read != r {
			t.Errorf("%q is %v, written as %s and read as %v, %v", text, r, written, read, err)
		}
	})
}
