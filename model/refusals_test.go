package model

import (
	"strings"
	"testing"
)

func TestAnErrorQuotesItsLine(t *testing.T) {
	text := strings.Replace(skipping, "kind: add", "kind: ad", 1)
	_, err := Parse(strings.NewReader(text))
	if err == nil || !strings.Contains(err.Error(), "> 10 |   - {name: d, kind: ad, from: [a, c]}") {
		t.Errorf("got %v; want it to mark line 10", err)
	}
}

func TestMoreRefusals(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"a circle is walked", "{name: b, kind: dense,", "{name: b, kind: dense, from: [c],",
			`"c" is part of a cycle: c reads b reads c`},
		{"its own input", "{name: b, kind: dense,", "{name: b, kind: dense, from: [b],", "b reads b"},
		{"a huge layer", "{name: b, kind: dense, width: 8", "{name: b, kind: dense, width: 2147483647",
			"2^30 elements are the most"},
		{"a huge input", "shape: [8]", "shape: [16777216, 16777216, 16777216]", "2^30 elements at most"},
		{"an empty input", "shape: [8]", "shape: [0]", "sizes are 1 to 2^24"},
		{"an input's name", "name: input,", "name: a picture,", "no spaces"},
		{"an input that nobody sees", "name: input,", "name: \"in\\u202eput\",", "is not shown but obeyed"},
		{"an input twice", "name: target,", "name: input,", "two inputs are named \"input\""},
		{"an input's type", "dtype: int", "dtype: byte", "float, int or bool"},
		{"a fraction", "width: 8", "width: 8.5", "8.5 is not a whole number"},
		{"a negative width", "width: 8", "width: -8", "out of range"},
		{"a list for a name", "name: a", "name: [a]", "it is a word"},
		{"a number to read from", "from: [a, c]", "from: [a, 3]", "3 is not a name"},
		{"half a sum", "from: [a, c]", "from: [a]", "two at least"},
		{"an activation", "activation: relu", "activation: swish",
			`"activation": it is swish; give none, relu, gelu or tanh`},
		{"joining integers", "{name: d, kind: add, from: [a, c]}", "{name: d, kind: concat, from: [target, a]}",
			"takes floats with a shape"},
		{"targets first", "from: [e, target]", "from: [target, e]", "in this order"},
		{"a tag without a value", "layers:", "more: !x", "tags like"},
		{"a name with a space", "name: b", "name: \"b b\"", "no spaces"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(skipping, c.from, c.to, 1)
			if text == skipping {
				t.Fatal("nothing was replaced")
			}
			if _, err := Parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
		})
	}
	if _, err := Parse(strings.NewReader("")); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty file: %v", err)
	}
}

// Checkpoints use full names. So the parameter norm.gain of a layer x must not collide with a layer called x.norm.
func TestParameterNamesAreUnique(t *testing.T) {
	in := []Tensor{{Name: "input", Shape: []int{4, 8}, DType: Float}}
	_, err := assemble("same", in, []node{
		{Name: "x", Kind: "mlp", From: []string{"input"}},
		{Name: "x.norm", Kind: "layer_norm", From: []string{"x"}},
	})
	if err == nil || !strings.Contains(err.Error(), `both have a parameter "x.norm.gain"`) {
		t.Errorf("got %v", err)
	}
}

func TestFamiliesRefuse(t *testing.T) {
	for _, c := range []struct {
		family, setting string
		value           any
		want            string
	}{
		{"mlp", "dropout", -0.5, "it is -0.5; give a number from 0 up to but not 1"},
		{"mlp", "dropout", "0.5x", "not a number"},
		{"mlp", "inputs", 0, "it is 0; give a whole number from 1 to 2^30"},
		{"mlp", "hidden", "64,x", `"x" is not a whole number`},
		{"mlp", "width", 3, "there are inputs, hidden, classes, activation, dropout"},
		{"convnet", "image", "28,28", "channels, height, width"},
		{"convnet", "image", "1,0,28", "it is 1,0,28; give whole numbers, each 1 or more"},
		{"convnet", "widths", "4,4,4,4,4,4", "does not fit an image of 1x1"},
		{"convnet", "convs", 1 << 30, "from 1 to 4096"},
		{"gpt", "layers", 1 << 30, "from 1 to 4096"},
		{"gpt", "heads", 7, "7 heads do not divide a width of 256"},
		{"gpt", "context", 0, "from 1 to 2^30"},
		{"gpt", "dropout", 1.0, "up to but not 1"},
		{"gpt", "activation", "relu", `"activation": it is relu; give gelu or gelu_tanh`},
		{"llama", "layers", 1 << 30, "from 1 to 4096"},
		{"llama", "heads", 7, "7 heads do not divide a width of 256 into even parts"},
		{"llama", "heads", 256, "256 heads do not divide a width of 256 into even parts"},
		{"llama", "kv_heads", 3, "kv_heads is 3; it divides the 8 heads"},
		{"llama", "kv_heads", 0, `"kv_heads": it is 0; give a whole number, 1 or more`},
		{"llama", "hidden", 0, `"hidden": it is 0`},
		{"llama", "theta", 1.0, "it is 1; give a number above 1 and below 1e+12"},
		{"llama", "epsilon", 0.0, "it is 0; give a number above 0 and below 1"},
	} {
		_, err := Build(c.family, map[string]any{c.setting: c.value})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s %v: got %v, want it to say %q", c.family, c.setting, c.value, err, c.want)
		}
	}
}

// Settings may be numbers from YAML or text from flags. Both have the same meaning.
func TestWordsAreNumbers(t *testing.T) {
	a, err := Build("mlp", map[string]any{"hidden": []any{uint64(8), uint64(4)}, "dropout": 0.25})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Build("mlp", map[string]any{"hidden": "8, 4", "dropout": "0.25"})
	if err != nil {
		t.Fatal(err)
	}
	if a.ID() != b.ID() {
		t.Errorf("%+v\n%+v", a, b)
	}
}
