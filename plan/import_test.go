package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestLayoutsComeBack checks that a layout written for a runtime is read back as the same stages.
func TestLayoutsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, names, cuts := cutBetweenBlocks(t)
		p, err := FromCuts(cuts, len(names), 2, 8)
		if err != nil {
			t.Fatal(err)
		}
		layout, err := p.MegatronLayout(names)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ReadMegatronLayout(layout, names); err != nil || !slices.Equal(got, cuts) {
			t.Fatalf("%s: cut before %v (%v), it was %v", layout, got, err, cuts)
		}
		parts, err := p.DeepSpeedParts()
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(parts)
		if got, err := ReadDeepSpeedParts(text, names); err != nil || !slices.Equal(got, cuts) {
			t.Fatalf("%s: cut before %v (%v), it was %v", text, got, err, cuts)
		}
		points, err := p.SplitPoints(names)
		if err != nil {
			t.Fatal(err)
		}
		spec := map[string]string{}
		for _, name := range points {
			if at := slices.Index(names, name); rapid.Bool().Draw(t, "end") {
				spec[names[at-1]] = "END"
			} else {
				spec[name] = "BEGINNING"
			}
		}
		text, _ = json.Marshal(spec)
		if got, err := ReadSplitPoints(text, names); err != nil || !slices.Equal(got, cuts) {
			t.Fatalf("%s: cut before %v (%v), it was %v", text, got, err, cuts)
		}
	})
}

// TestMegatronLayoutsAsPeopleWriteThem reads layouts with repetitions, groups and commas. The expected cuts were worked
// out by hand.
func TestMegatronLayoutsAsPeopleWriteThem(t *testing.T) {
	names := gpt(6) // embed, 6 x 2, norm, head, loss
	for layout, want := range map[string][]int{
		"Et|t*4|tL": {3, 11}, "E,t,|,(t|)*4,t,L": {3, 5, 7, 9, 11}, "EttttttL": nil, "E|(tt|)*3L\n": {1, 5, 9, 13},
		"Et*3|t*3|L": {7, 13},
	} {
		if got, err := ReadMegatronLayout(layout, names); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: cut before %v (%v), want %v", layout, got, err, want)
		}
	}
	for layout, want := range map[string]string{
		"Et*5|L": "where the model has 't'", "Et*7|L": "stage 0 has 't' where the model has 'L'",
		"Et*6": "ends with 7 of the model's 8", "Et*6||L": "stage 1 of 3 is empty",
		"Et*6mL": `"m" at 4`, "Et*0L": "from 1 to", "E(tt|*3L": "a ( without )", "E((t|)*2|)*3L": "groups do not nest",
		"Et*6LL": "behind the model's 8", "": "stage 0 of 1 is empty",
		"Et*99999999999999999999L": "from 1 to", "E(x)*2L": "beside E, t, L",
	} {
		if got, err := ReadMegatronLayout(layout, names); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; it should say %q", layout, got, err, want)
		}
	}
	if _, err := ReadMegatronLayout("EtL", []string{"conv1", "loss"}); err == nil {
		t.Error("a model without transformer layers has no layout")
	}
}

func TestCutsRefuse(t *testing.T) {
	names := gpt(2)
	for text, want := range map[string]string{
		`[0, 3]`: "the model's 8 layers", `[0, 5, 5, 8]`: "stage 1 is from layer 5 up to 5", `[1, 8]`: "begin with 0",
		`[0, 8] x`: "behind its end", `{}`: "JSON list", `[]`: "begin with 0", `[0, 2.5, 8]`: "JSON list",
	} {
		if got, err := ReadDeepSpeedParts([]byte(text), names); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; it should say %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"block9.mlp": "BEGINNING"}`: `no layer "block9.mlp"`, `{"norm": "MIDDLE"}`: "BEGINNING or END",
		`{"embed": "BEGINNING"}`: "without layers", `{"loss": "END"}`: "without layers", `[1]`: "JSON object",
	} {
		if got, err := ReadSplitPoints([]byte(text), names); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; it should say %q", text, got, err, want)
		}
	}
	if p, err := FromCuts([]int{3, 3}, 8, 1, 4); err == nil {
		t.Errorf("a stage without layers: %+v", p.Stages)
	}
}

// FuzzLayouts: any text is read as cuts that a plan can have, or refused.
func FuzzLayouts(f *testing.F) {
	for _, text := range []string{"Et*3|t*3|L", "E|(tt|)*3L", "[0, 5, 16]", `{"norm": "BEGINNING", "block2.mlp": "END"}`,
		"E(t|)*9999999L", "(|)*65000", "[", "{\"a\":1}"} {
		f.Add(text)
	}
	names := gpt(6)
	f.Fuzz(func(t *testing.T, text string) {
		for name, read := range map[string]func() ([]int, error){
			"megatron":     func() ([]int, error) { return ReadMegatronLayout(text, names) },
			"deepspeed":    func() ([]int, error) { return ReadDeepSpeedParts([]byte(text), names) },
			"split points": func() ([]int, error) { return ReadSplitPoints([]byte(text), names) },
		} {
			cuts, err := read()
			if err != nil {
				continue
			}
			p, err := FromCuts(cuts, len(names), 1, 1)
			if err != nil {
				t.Fatalf("%s reads %q as cuts before %v: %v", name, text, cuts, err)
			}
			if name == "megatron" {
				layout, err := p.MegatronLayout(names)
				if err != nil {
					t.Fatalf("%q, cut before %v: %v", text, cuts, err)
				}
				if again, err := ReadMegatronLayout(layout, names); err != nil ||
					fmt.Sprint(again) != fmt.Sprint(cuts) {
					t.Fatalf("%q, written as %q: cut before %v (%v), it was %v", text, layout, again, err, cuts)
				}
			}
		}
	})
}
