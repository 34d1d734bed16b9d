package registry

import (
	"slices"
	"testing"
)

func TestWhichNameIsMeant(t *testing.T) {
	few := []string{"sgd", "adam", "adamw"}
	many := []string{"afab", "1f1b", "1f1b-as", "interleaved", "chimera", "elastic", "zb-h1", "zb-h2", "zb-v", "v-half"}
	types := []string{"v100", "v100-32gb", "a100-40gb", "a100-80gb", "h100", "p100"}
	for _, c := range []struct {
		given string
		names []string
		want  string
	}{
		{"adm", few, "did you mean adam? there are sgd, adam, adamw"},
		{"ADAMW", few, "did you mean adamw? there are sgd, adam, adamw"},
		{"lion", few, "there are sgd, adam, adamw, or give the path of a file"},
		{"1f1", many, "did you mean 1f1b?"},
		{"a100", types, "did you mean a100-40gb or a100-80gb? there are v100, v100-32gb, a100-40gb, a100-80gb, h100, p100"},
		{"A100-40g", types, "did you mean a100-40gb? there are v100, v100-32gb, a100-40gb, a100-80gb, h100, p100"},
		{"zb-h3", many, "did you mean zb-h1 or zb-h2?"},
		{"A100", []string{"avgpipe", "dgx-a100", "dgx-h100", "pcie-8xa100", "workshop-3090-4090"},
			"did you mean dgx-a100 or pcie-8xa100?"},
		{"inter", many, "did you mean interleaved?"},
		{"evaluate_every", []string{"eval_every", "rate_every", "save_every"}, "did you mean eval_every? " +
			"there are eval_every, rate_every, save_every"},
		{"checkpoint_every", []string{"eval_every", "keep", "save_every"}, "there are eval_every, keep, save_every, or " +
			"give the path of a file"},
		{"", few, "there are sgd, adam, adamw, or give the path of a file"},
		{"x", few[:1], "there is sgd, or give the path of a file"},
	} {
		if got := Instead(c.given, c.names, "the path of a file"); got != c.want {
			t.Errorf("%q: %q, want %q", c.given, got, c.want)
		}
	}
	if err := OneOf("adam", few); err != nil {
		t.Error(err)
	}
	want := `there is no optimizer "sdg"; did you mean sgd? there are sgd, adam, adamw`
	if err := None("optimizer", "sdg", few); err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestNamesThatShareAWord(t *testing.T) {
	names := []string{"eval-every", "keep", "lr-every", "save-every", "save-mode"}
	for given, want := range map[string][]string{
		"checkpoint-every": {"eval-every", "lr-every", "save-every"},
		"Save_Everything":  {"save-every", "save-mode"},
		"a":                nil,
		"":                 nil,
	} {
		if got := Sharing(given, names); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}
