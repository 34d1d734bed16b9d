package data

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRowsOfAFileOfArrays: Rows returns the test rows in the order in which an evaluation reads them. The other rows
// are training rows.
func TestRowsOfAFileOfArrays(t *testing.T) {
	set, err := Open(numbered(t, 40), wanted)
	if err != nil {
		t.Fatal(err)
	}
	test, err := Rows(set.Test)
	if want := epoch(t, set.Test, 4, 0); err != nil || len(test) != 4 || !slices.Equal(test, want) {
		t.Errorf("%v, %v; an evaluation reads %v", test, err, want)
	}
	train, err := Rows(set.Train)
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Sorted(slices.Values(slices.Concat(train, test)))
	for i, row := range all {
		if i != row || len(all) != 40 {
			t.Fatalf("the rows of both parts are %v", all)
		}
	}
	short, err := Head(set.Test, 2)
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := Rows(short); err != nil || !slices.Equal(rows, test[:2]) {
		t.Errorf("the first two are %v, %v; want %v", rows, err, test[:2])
	}
}

// TestRowsOfATable: of 10 rows under a heading, the fifth and the tenth are held out. If that would hold out all rows
// of a class, every fifth row of each class is held out instead. For the classes 0 0 0 0 1, repeated five times, these
// are rows 5, 11, 17, 23 (the 5th, 10th, ... of class 0) and 24 (the 5th of class 1), counted from 0.
func TestRowsOfATable(t *testing.T) {
	for _, c := range []struct {
		classes string
		want    []int
	}{
		{strings.Repeat("0 1 ", 5), []int{4, 9}},
		{strings.Repeat("0 0 0 0 1 ", 5), []int{5, 11, 17, 23, 24}},
	} {
		text := "x,class\n"
		for i, class := range strings.Fields(c.classes) {
			text += fmt.Sprintf("%d,%s\n", i, class)
		}
		set, err := Open(writeFile(t, "a.csv", []byte(text)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if rows, err := Rows(set.Test); err != nil || !slices.Equal(rows, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.classes, rows, err, c.want)
		}
		train, err := Rows(set.Train)
		if n := len(strings.Fields(c.classes)); err != nil || len(train) != n-len(c.want) ||
			slices.ContainsFunc(train, func(row int) bool { return slices.Contains(c.want, row) }) {
			t.Errorf("%s: rows %v train, %v", c.classes, train, err)
		}
	}
}

// TestATextHasNoRows: the samples of a text are windows, so Rows refuses them.
func TestATextHasNoRows(t *testing.T) {
	set, err := Open(writeFile(t, "a.txt", []byte(strings.Repeat("abcdefghij", 200))), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := Rows(set.Test); err == nil || !strings.Contains(err.Error(), "a text has windows") {
		t.Errorf("%v, %v", rows, err)
	}
}
