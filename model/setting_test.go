package model

import (
	"math"
	"strings"
	"testing"
)

// The example of every kind is a valid layer. The docs and millrace model kinds show it.
func TestExamplesOfKindsAreLayers(t *testing.T) {
	for _, k := range Kinds() {
		if len(k.Reads) == 0 {
			t.Errorf("%s has no example", k.Name)
			continue
		}
		inputs, from := []Tensor{}, []string{}
		for i, x := range k.Reads {
			x.Name = string(rune('a' + i))
			inputs, from = append(inputs, x), append(from, x.Name)
		}
		m, err := assemble("example", inputs, []node{{Name: "layer", Kind: k.Name, From: from, Settings: k.Example}})
		if err != nil {
			t.Errorf("the example of %s: %v", k.Name, err)
			continue
		}
		if got := m.Layers[0].Outputs; len(got) != 1 || len(got[0].Shape) == 0 && k.Name != "cross_entropy" {
			t.Errorf("the example of %s yields %v", k.Name, got)
		}
		for name := range k.Example {
			if !strings.Contains(k.YAML(), name+": ") {
				t.Errorf("%s is shown as %s, without %s", k.Name, k.YAML(), name)
			}
		}
	}
}

// A setting accepts exactly the values within its documented limits.
func TestSettingsTakeWhatTheySay(t *testing.T) {
	for _, c := range []struct {
		of       Setting
		says     string
		good, no []any
	}{
		{count("n", nil, ""), "a whole number, 1 or more", []any{1, "7"}, []any{0, "x", 1.5, -1}},
		{amount("n", 1, ""), "a whole number, 0 or more", []any{0, 3.0}, []any{-1}},
		{repeats("n", 1, ""), "a whole number from 1 to 4096", []any{1, 4096}, []any{0, 4097}},
		{size("n", 1, ""), "a whole number from 1 to 2^30", []any{1 << 30}, []any{1<<30 + 1}},
		{counts("n", nil, ""), "whole numbers, each 1 or more", []any{"1,2", []int{3}}, []any{"1,0", "a", []int{0}}},
		{probability("p", 0, ""), "a number from 0 up to but not 1", []any{0.0, "0.999"}, []any{1.0, -0.1, math.NaN()}},
		{theta, "a number above 1 and below 1e+12", []any{1.5}, []any{1.0, 1e12, math.Inf(1)}},
		{choice("w", "a", "", "a", "b", "c"), "a, b or c", []any{"b"}, []any{"d", 1}},
		{flag("f", true, ""), "true or false", []any{false, "true"}, []any{"yes", 1}},
		{word("w", "", ""), "a word", []any{"any.thing"}, []any{7}},
	} {
		if got := c.of.Takes(); got != c.says {
			t.Errorf("it takes %q, want %q", got, c.says)
		}
		for _, v := range c.good {
			if _, err := c.of.convert(v); err != nil {
				t.Errorf("%s: %v is refused: %v", c.says, v, err)
			}
		}
		for _, v := range c.no {
			if got, err := c.of.convert(v); err == nil {
				t.Errorf("%s: %v is taken as %v", c.says, v, got)
			}
		}
	}
}
