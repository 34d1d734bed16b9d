package data

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/data/arrays"
)

// TestNumbersOutOfRange: a number that a model does not accept is refused. Open refuses the number if it checks the
// whole array; otherwise the batch with the number is refused. The error names the array, the row, the place in the
// row, the value, and what would be right.
func TestNumbersOutOfRange(t *testing.T) {
	skip := int64(-100)
	ids := make([]int64, 40*6)
	for i := range ids {
		ids[i] = int64(i % 6)
	}
	fields := func(r ...Range) []Field { return []Field{{"ids", []int{2, 3}, Int, r}} }
	for _, c := range []struct {
		value int64
		r     Range
		says  string
	}{
		{5, Range{Most: 5, For: "a table of 6"}, ""},
		{1, Range{For: "1 logit"}, `takes only 0: 1 logit`},
		{6, Range{Most: 5, For: "a table of 6"}, `row 7 has 6 at [1 2], and the model's "ids" takes 0 to 5: a table of 6`},
		{-1, Range{Most: 5, For: "t"}, `row 7 has -1 at [1 2], and the model's "ids" takes 0 to 5: t`},
		{-1, Range{Least: -6, Most: 5}, ""}, // -1 is counted from the table's end, as in PyTorch
		{-100, Range{Most: 5, Skip: &skip}, ""},
		{-99, Range{Most: 5, Skip: &skip, For: "t"}, `takes 0 to 5, or -100, which is left out: t`},
		{99, Range{Most: 4, At: []int{0, 4}}, ""},
		{99, Range{Most: 5, At: []int{0, 5}, For: "t"}, `row 7 has 99 at [1 2]`},
	} {
		ids[7*6+5] = c.value
		path := tensorFile(t, tensor{"ids", "I64", []int64{40, 2, 3}, ids})
		_, err := Open(path, Options{Fields: fields(c.r), TrainPart: 1})
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%d at %v in %v: %v, want %q", c.value, c.r.At, c.r, err, c.says)
		}
	}
	// An array that is too long to be checked by Open is refused only in the batch that has the number.
	ids[7*6+5] = 6
	set, err := Open(tensorFile(t, tensor{"ids", "I64", []int64{40, 2, 3}, ids}), Options{Fields: fields(), TrainPart: 1})
	if err != nil {
		t.Fatal(err)
	}
	set.Train.(*rows).columns[0].as.Ranges = []Range{{Most: 5, For: "t"}}
	bad := 0
	for step := range 10 {
		_, err := set.Train.Batch(step, 4, 0, 4)
		var value *arrays.ValueError
		if errors.As(err, &value) && value.Row == 7 && strings.Contains(err.Error(), `array "ids": row 7 has 6 at [1 2]`) {
			bad++
		} else if err != nil {
			t.Error(err)
		}
	}
	if bad != 1 {
		t.Errorf("%d batches of an epoch are refused, and one has the row", bad)
	}
}

// TestTextsAndTablesOutOfRange: texts and tables are checked against ranges when they are opened.
func TestTextsAndTablesOutOfRange(t *testing.T) {
	text := writeFile(t, "a.txt", []byte(strings.Repeat("abcd", 100)))
	both := func(most int64) Options {
		r := []Range{{Most: most, For: "t"}}
		return Options{Fields: []Field{{"x", []int{4}, Int, r}, {"y", []int{4}, Int, nil}}, Target: "y"}
	}
	if _, err := Open(text, both('d')); err != nil {
		t.Error(err)
	}
	if _, err := Open(text, both('c')); err == nil || !strings.Contains(err.Error(), `byte 3 is 100, and the model's "x"`) {
		t.Errorf("a byte above all: %v", err)
	}
	o := both(5000)
	o.Tokenizer = "r50k"
	long := writeFile(t, "b.txt", []byte(strings.Repeat("The quick brown fox jumps over the lazy dog. ", 40)))
	if _, err := Open(long, o); err == nil || !strings.Contains(err.Error(), "--set vocabulary=50257") ||
		!strings.Contains(err.Error(), "token 2 is 7586") {
		t.Errorf("a token above all: %v", err)
	}
	digits := Options{Fields: []Field{{"x", []int{64}, Float, nil}, {"y", nil, Int, []Range{{Most: 8, For: "t"}}}},
		Target: "y"}
	if _, err := Open("digits", digits); err == nil ||
		!strings.Contains(err.Error(), "has class 9, and the model's \"y\"") {
		t.Errorf("a class above all: %v", err)
	}
}

// TestMadeUpNumbersAreInRange: a synthetic number that is only an index is within the ranges of all tables that it
// indexes. Any other synthetic number is the smallest allowed number or the next one.
func TestMadeUpNumbersAreInRange(t *testing.T) {
	for _, c := range []struct {
		name        string
		ranges      []Range
		least, most int64 // limits for element 1
	}{
		{"nothing is known", nil, 0, 1},
		{"an index", []Range{{Most: 5, Only: true}}, 0, 5},
		{"an index of two tables", []Range{{Most: 5, Only: true}, {Least: 2, Most: 9, Only: true}}, 2, 5},
		{"calculated with, too", []Range{{Least: 3, Most: 9}}, 3, 4},
		{"an index that is calculated with in one place", []Range{{Most: 5, Only: true}, {Most: 9}}, 0, 1},
		{"one number is right", []Range{{Least: 4, Most: 4}}, 4, 4},
		{"from the end of a table, too", []Range{{Least: -6, Most: 5, Only: true}}, 0, 5},
		{"a range of its own", []Range{{Most: 7, Only: true, At: []int{1}}}, 0, 7},
		{"a range of others", []Range{{Most: 7, Only: true, At: []int{0, 2}}}, 0, 1},
	} {
		f := Field{"x", []int{3}, Int, c.ranges}
		if least, most := f.limits(1); least != c.least || most != c.most {
			t.Errorf("%s: %d to %d, want %d to %d", c.name, least, most, c.least, c.most)
		}
		for step := range 20 {
			b, err := Synthetic(40, []Field{f}).Batch(step, 2, 0, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range [][]int64{b["x"].Ints[:3], b["x"].Ints[3:]} {
				if err := f.check(row); err != nil {
					t.Errorf("%s: made up is %v", c.name, err)
				}
			}
		}
	}
}
