package scatter_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/report/scatter"
)

// A drawing is well-formed and always the same. It has a shape for each point, the bound, and names.
func TestDrawing(t *testing.T) {
	d := &scatter.Drawing{Title: "steps & memory", X: "GiB", Y: "s", Bound: 80, BoundName: "memory"}
	d.Series = []scatter.Series{
		{Name: "tp 1", Points: []scatter.Point{{X: 10, Y: 1}, {X: 100, Y: 0.5, Out: true}}},
		{Name: "tp 2", Points: []scatter.Point{{X: 20, Y: 3}}}}
	one, err := d.SVG()
	if err != nil {
		t.Fatal(err)
	}
	two, err := d.SVG()
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("two drawings differ, %v", err)
	}
	dec := xml.NewDecoder(bytes.NewReader(one))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"tp 1", "tp 2", "memory", "does not fit", "steps &amp; memory", "stroke-dasharray"} {
		if !strings.Contains(string(one), want) {
			t.Errorf("there is no %q", want)
		}
	}
	shapes := func(svg []byte) int { return bytes.Count(svg, []byte("<path")) }
	d.Series[1].Points = append(d.Series[1].Points, scatter.Point{X: 30, Y: 2})
	more, err := d.SVG()
	if err != nil || shapes(more) != shapes(one)+1 {
		t.Errorf("a point more is %d shapes more, %v", shapes(more)-shapes(one), err)
	}
}

// A bound that is far off is named and not drawn, so that the points keep their distances.
func TestABoundThatIsFarIsNamed(t *testing.T) {
	d := &scatter.Drawing{Bound: 31, BoundName: "memory"}
	d.Series = []scatter.Series{{Points: []scatter.Point{{X: 10, Y: 1}}}}
	far, err := d.SVG()
	d.Bound = 29
	near, nearErr := d.SVG()
	if err != nil || nearErr != nil {
		t.Fatal(err, nearErr)
	}
	if !bytes.Contains(far, []byte("31, off to the right")) || bytes.Contains(far, []byte("stroke-dasharray")) ||
		!bytes.Contains(near, []byte("stroke-dasharray")) {
		t.Errorf("%s\n%s", far, near)
	}
}

func TestRefusedDrawings(t *testing.T) {
	for want, s := range map[string][]scatter.Series{"no point": nil, "at 1, 0": {{Points: []scatter.Point{{X: 1}}}}} {
		if _, err := (&scatter.Drawing{Series: s}).SVG(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The axis of y says that it is logarithmic. It has at least four numbers between 0.0056 and 0.02. Only two numbers in
// this range are 1, 2 or 5 times a power of ten.
func TestTheLogarithmicAxisCanBeRead(t *testing.T) {
	points := []scatter.Point{{X: 1, Y: 0.0056}, {X: 2, Y: 0.02}}
	d := &scatter.Drawing{Y: "step, s", Series: []scatter.Series{{Points: points}}}
	svg, err := d.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"step, s (logarithmic)", ">0.006<", ">0.007<", ">0.01<", ">0.02<"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("there is no %q", want)
		}
	}
	d.Series[0].Points = []scatter.Point{{X: 1, Y: 1.21}, {X: 2, Y: 1.68}} // no digit times a power of ten is in between
	if svg, err = d.SVG(); err != nil || !bytes.Contains(svg, []byte(">1.3<")) || !bytes.Contains(svg, []byte(">1.6<")) {
		t.Errorf("from 1.21 to 1.68: %v", err)
	}
}
