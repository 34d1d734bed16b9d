package data

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAPairGoesByTheModelsNames: data with one input and its targets gets a model's names and shapes. The numbers and
// their order stay the same.
func TestAPairGoesByTheModelsNames(t *testing.T) {
	plain, err := Open("digits", Options{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	want, err := plain.Train.Batch(1, 8, 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	image, label := Field{"image", []int{1, 8, 8}, Float, nil}, Field{"label", []int{1}, Int, nil}
	for _, c := range []struct {
		fields []Field
		target string
		shapes map[string]string
	}{
		{nil, "", map[string]string{"input": "[4 64]", "target": "[4]"}},
		{[]Field{image, label}, "label", map[string]string{"image": "[4 1 8 8]", "label": "[4 1]"}},
		{[]Field{label, image}, "label", map[string]string{"image": "[4 1 8 8]", "label": "[4 1]"}},
		{[]Field{image}, "image", map[string]string{"image": "[4 1 8 8]"}}, // the model's only input is also its target
	} {
		set, err := Open("digits", Options{Seed: 3, Fields: c.fields, Target: c.target})
		if err != nil {
			t.Fatal(err)
		}
		got, err := set.Train.Batch(1, 8, 2, 4)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(c.shapes) || len(set.Fields) != len(c.shapes) {
			t.Errorf("%v: arrays %v, fields %v", c.fields, got, set.Fields)
		}
		for name, shape := range c.shapes {
			numbers, of := got[name], want["input"]
			if shape == "[4]" || shape == "[4 1]" {
				of = want["target"]
			}
			if fmt.Sprint(numbers.Shape) != shape || !slices.Equal(numbers.Floats, of.Floats) ||
				!slices.Equal(numbers.Ints, of.Ints) {
				t.Errorf("%v: %s is %v; want the shape %s", c.fields, name, numbers, shape)
			}
		}
	}
}

func TestWhatAPairCannotBeReadAs(t *testing.T) {
	text := writeFile(t, "a.txt", []byte(strings.Repeat("0123456789", 100)))
	x, y := Field{"x", []int{64}, Float, nil}, Field{"y", nil, Int, nil}
	for _, c := range []struct {
		data   string
		fields []Field
		want   string
	}{
		{"digits", []Field{x, x, y},
			"digits has one input and its targets, and the model reads [x float[64] x float[64] y int[]]"},
		{"digits", []Field{{"x", []int{64}, Int, nil}, y}, `the inputs of digits are float, and "x" is to be int`},
		{"digits", []Field{{"x", []int{64}, Bool, nil}, y}, `the inputs of digits are float, and "x" is to be bool`},
		{"digits", []Field{x, {"y", nil, Float, nil}}, `the targets of digits are int, and "y" is to be float`},
		{"digits", []Field{x, {"y", []int{64}, Int, nil}}, `targets of shape [], which cannot be read as "y" of shape [64]`},
		{"digits", []Field{{"x", []int{65}, Float, nil}, y}, `inputs of shape [64], which cannot be read as "x" of shape [65]`},
		{text, []Field{x, y}, `a.txt are int, and "x" is to be float`},
		{text, []Field{{"x", []int{16}, Int, nil}, y}, `targets of shape [16], which cannot be read as "y" of shape []`},
	} {
		if _, err := Open(c.data, Options{Fields: c.fields, Target: "y"}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want it to say %q", c.fields, err, c.want)
		}
	}
}

// TestSyntheticArrays: synthetic samples have every array that a model reads, within allowed ranges. Every request for
// a row returns the same values.
func TestSyntheticArrays(t *testing.T) {
	fields := []Field{{"x", []int{2, 3}, Float, nil}, {"ids", []int{5}, Int, nil}, {"mask", []int{5}, Bool, nil},
		{"y", nil, Int, nil}, {"of", []int{3}, Int, []Range{{Most: 6, Only: true}, {Least: -9, At: []int{1}, Only: true}}}}
	s := Synthetic(100, fields)
	whole, err := s.Batch(0, 40, 0, 40)
	if err != nil {
		t.Fatal(err)
	}
	part, err := s.Batch(0, 40, 10, 20)
	if err != nil {
		t.Fatal(err)
	}
	if len(whole) != len(fields) {
		t.Errorf("arrays %v", whole)
	}
	if x := whole["x"]; fmt.Sprint(x.Shape) != "[40 2 3]" || len(x.Floats) != 240 || slices.Max(x.Floats) > 1 ||
		slices.Min(x.Floats) < -1 || !slices.Equal(x.Floats[60:180], part["x"].Floats) {
		t.Errorf("x is %v", x)
	}
	if ids := whole["ids"]; len(ids.Ints) != 200 || slices.Min(ids.Ints) != 0 || slices.Max(ids.Ints) != 1 ||
		!slices.Equal(ids.Ints[50:150], part["ids"].Ints) {
		t.Errorf("ids are %v", ids)
	}
	if of := whole["of"].Ints; slices.Max(of) != 6 || slices.Min(of) != 0 || of[1] != 0 || of[4] != 0 ||
		!slices.Equal(of[30:90], part["of"].Ints) {
		t.Errorf("in ranges are %v", of)
	}
	if m := whole["mask"]; len(m.Bools) != 200 || !slices.Contains(m.Bools, true) || !slices.Contains(m.Bools, false) ||
		!slices.Equal(m.Bools[50:150], part["mask"].Bools) {
		t.Errorf("the mask is %v", m)
	}
	if y := whole["y"]; fmt.Sprint(y.Shape) != "[40]" || len(y.Ints) != 40 ||
		slices.Equal(y.Ints, whole["ids"].Ints[:40]) {
		t.Errorf("y is %v", y)
	}
}

// TestATextOfTokens: with a tokenizer, the rows of a text are windows of tokens. The text "a b a b ..." becomes the
// token of "a", followed by the tokens of " b" and " a" alternately.
func TestATextOfTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.txt")
	if err := os.WriteFile(path, []byte(strings.TrimSuffix(strings.Repeat("a b ", 60), " ")), 0o644); err != nil {
		t.Fatal(err)
	}
	fields := []Field{{"input", []int{4}, Int, nil}, {"target", []int{4}, Int, nil}}
	set, err := Open(path, Options{Tokenizer: "gpt2", Fields: fields, Target: "target"})
	if err != nil {
		t.Fatal(err)
	}
	const a, b = 257, 275 // GPT-2's " a" and " b"
	if set.Classes != 50257 || set.Train.Len() != (108-1)/4 || set.Test.Len() != (12-1)/4 {
		t.Errorf("%d classes, %d and %d rows", set.Classes, set.Train.Len(), set.Test.Len())
	}
	batch, err := set.Test.Batch(0, 2, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		name string
		row  []int64
	}{{"input", []int64{a, b, a, b}}, {"target", []int64{b, a, b, a}}} {
		if got := batch[want.name].Ints; !slices.Equal(got[:4], want.row) || !slices.Equal(got[4:], want.row) {
			t.Errorf("%s is %v, want %v twice", want.name, got, want.row)
		}
	}
	for spec, want := range map[string]string{"digits": "digits is none", path: "there is no tokenizer \"x\""} {
		tokenizer := map[string]string{"digits": "gpt2", path: "x"}[spec]
		if _, err := Open(spec, Options{Tokenizer: tokenizer}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want it to say %q", err, want)
		}
	}
}
