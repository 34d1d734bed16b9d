package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Here the layers conv and b are divided, and their pieces are worked out by hand. b has 8 features. Its parts of 0.3,
// 0.45 and 0.25 end at features round(2.4), round(6) and 8. Layer d reads b. Layer e reads b too, by a skip.
func TestDivideByHand(t *testing.T) {
	m, err := Parse(strings.NewReader(`
name: hand
inputs:
  - {name: input, shape: [3, 6, 6], dtype: float}
  - {name: target, shape: [], dtype: int}
layers:
  - {name: conv, kind: conv2d, from: [input], channels: 4, batch_norm: true, activation: relu}
  - {name: flat, kind: flatten}
  - {name: b, kind: dense, width: 8, activation: tanh}
  - {name: d, kind: dense, width: 8}
  - {name: e, kind: add, from: [d, b]}
  - {name: loss, kind: cross_entropy, from: [e, target]}
`))
	if err != nil {
		t.Fatal(err)
	}
	before := m.ID()
	one := []float64{1}
	got, err := m.Divide([][]float64{{0.25, 0.75}, one, {0.3, 0.45, 0.25}, one, one, one})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for i, l := range got.Layers {
		var params []string
		for k, p := range l.Params {
			params = append(params, fmt.Sprint(l.ParamName(k), p.Shape))
		}
		said = append(said, fmt.Sprintf("%d %s %v %s %s", got.Position(i), l.Name, l.Outputs[0].Shape,
			strings.Join(l.From, ","), strings.Join(params, " ")))
	}
	want := []string{
		"0 conv[0:1] [1 6 6] input conv.weight[0:1][1 3 3 3]",
		"0 conv [4 6 6] input,conv[0:1] conv.weight[1:4][3 3 3 3] conv.gain[4] conv.shift[4] conv.mean[4] conv.variance[4]",
		"1 flat [144] conv ",
		"2 b[0:2] [2] flat b.weight[0:2][2 144] b.bias[0:2][2]",
		"2 b[2:6] [4] flat b.weight[2:6][4 144] b.bias[2:6][4]",
		"2 b [8] flat,b[0:2],b[2:6] b.weight[6:8][2 144] b.bias[6:8][2]",
		"3 d [8] b d.weight[8 8] d.bias[8]",
		"4 e [8] d,b ",
		"5 loss [] e,target ",
	}
	if !slices.Equal(said, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	if p := got.Layers[4].Params[1].Rows; *p != (Rows{Name: "b.bias", First: 2, End: 6, Of: 8}) ||
		!slices.Equal(got.Layers[4].Params[0].Rows.Shape([]int{4, 144}), []int{8, 144}) {
		t.Errorf("rows %+v", p)
	}
	if got.Layers[4].Whole() != "b" || got.Layers[6].Whole() != "d" || m.ID() != before {
		t.Errorf("%s, %s", got.Layers[4].Whole(), got.Layers[6].Whole())
	}
	for parts, want := range map[string]string{
		"pool": `layer "flat" cannot be divided between stages: it is of kind flatten; layers of 2 features or more can ` +
			"be, of kinds conv2d and dense",
		"thin": `layer "b" cannot be divided between stages: part 2 of [0.9 0.03 0.07] is none of its 8 features`,
		"few":  "hand has 6 layers; parts of 1 are given",
		"none": `layer "b" cannot be divided between stages: it has no part`,
	} {
		all := map[string][][]float64{"pool": {one, {0.5, 0.5}, one, one, one, one},
			"thin": {one, one, {0.9, 0.03, 0.07}, one, one, one}, "few": {one},
			"none": {one, one, nil, one, one, one}}[parts]
		if _, err := m.Divide(all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", parts, err)
		}
	}
}

// PartOf reverses PartName, and refuses names that do not name rows.
func TestNamesOfRows(t *testing.T) {
	for _, of := range strings.Fields("a.b.weight blocks[2].weight a[0:2] [x]") {
		whole, first, end, ok := PartOf(PartName(of, 3, 17))
		if !ok || whole != of || first != 3 || end != 17 {
			t.Errorf("%s: %s, %d, %d, %v", of, whole, first, end, ok)
		}
	}
	for _, name := range strings.Fields("a.weight [0:2] a[2:2] a[-1:2] a[0:2 a[0:02] a[0] a[x:2] a[0:2]]") {
		if _, _, _, ok := PartOf(name); ok {
			t.Errorf("%s is taken for rows", name)
		}
	}
}
