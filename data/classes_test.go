package data

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestClassesOfACSVMayBeWords: classes that are words are numbered in sorted order, whatever the order of the rows. The
// heading is kept, and blanks around fields are removed.
func TestClassesOfACSVMayBeWords(t *testing.T) {
	text := "age, income, bought\n"
	words := []string{"yes", "no", "maybe"}
	for row := range 30 {
		text += fmt.Sprintf("%d, %d, %s\n", row, 2*row, words[row%3])
	}
	set, err := readCSV("people.csv", strings.NewReader(text), Options{Seed: 1}, normaliseColumns)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"maybe", "no", "yes"}; !slices.Equal(set.ClassNames, want) || set.Classes != 3 {
		t.Errorf("the classes are %q, %d of them; want %q", set.ClassNames, set.Classes, want)
	}
	if got := set.Named(); got != "maybe = 0, no = 1, yes = 2" {
		t.Errorf("they are said as %q", got)
	}
	if want := []string{"age", "income", "bought"}; !slices.Equal(set.Heading, want) {
		t.Errorf("the heading is %q, want %q", set.Heading, want)
	}
	// Every fifth row is a test row. This batch of six test rows has each of the three classes twice.
	first, err := set.Test.Batch(0, 6, 0, 6)
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	got = append(got, first["target"].Ints...)
	slices.Sort(got)
	if want := []int64{0, 0, 1, 1, 2, 2}; !slices.Equal(got, want) || set.Kept != "every fifth row" {
		t.Errorf("classes %v are kept, %s; want %v", got, set.Kept, want)
	}
	numbers, err := readCSV("a.csv", strings.NewReader(strings.Repeat("1,2,0\n1,2,1\n", 10)), Options{}, normaliseColumns)
	if err != nil || numbers.ClassNames != nil || numbers.Heading != nil || numbers.Kept != "every fifth row" &&
		numbers.Kept != "every fifth row of each class" {
		t.Errorf("numbers have classes %q, heading %q, kept %s, %v", numbers.ClassNames, numbers.Heading, numbers.Kept, err)
	}
}

func TestATableHas256ClassesAtMost(t *testing.T) {
	text := ""
	for i := range 257 {
		text += fmt.Sprintf("1,class%d\n", i)
	}
	if _, err := readCSV("a.csv", strings.NewReader(text), Options{}, normaliseColumns); err == nil ||
		!strings.Contains(err.Error(), "line 257") || !strings.Contains(err.Error(), "256 classes") {
		t.Errorf("257 classes: %v", err)
	}
}

// TestColumnsAreScaledEach: columns that measure different things are scaled separately. Each has mean 0 and deviation
// 1 over the training rows, and the test rows use the same scale. A constant column becomes 0.
func TestColumnsAreScaledEach(t *testing.T) {
	text := ""
	for i := range 20 {
		near, held := float64(i%4), 0.0
		if i%5 == 4 {
			held = 1
		}
		text += fmt.Sprintf("%v,%v,0.1,%v,1e-42,%d\n", 0.01*near+3, 1000*near+5e4, near+100*held, i%2)
	}
	set, err := readCSV("wide.csv", strings.NewReader(text), Options{Seed: 1}, normaliseColumns)
	if err != nil {
		t.Fatal(err)
	}
	rows := func(s Split) []float32 {
		b, err := s.Batch(0, s.Len(), 0, s.Len())
		if err != nil {
			t.Fatal(err)
		}
		return b["input"].Floats
	}
	train, test := rows(set.Train), rows(set.Test)
	for c, want := range []struct{ mean, deviation float64 }{{0, 1}, {0, 1}, {0, 0}, {0, 1}, {0, 0}} {
		mean, squares, n := 0.0, 0.0, float64(set.Train.Len())
		for at := c; at < len(train); at += 5 {
			mean += float64(train[at]) / n
			squares += float64(train[at]) * float64(train[at]) / n
		}
		if deviation := math.Sqrt(squares); math.Abs(mean-want.mean) > 1e-3 || math.Abs(deviation-want.deviation) > 1e-3 {
			t.Errorf("column %d has mean %v and deviation %v, want %v", c, mean, deviation, want)
		}
	}
	if held := test[3]; held < 50 { // it is about 100 standard deviations of the training rows
		t.Errorf("a held-out value of about 100 is read as %v: by its own part's scale", held)
	}
	for at := 2; at < len(test); at += 5 {
		if test[at] != 0 {
			t.Errorf("0.1 in every row is read as %v", test[at])
		}
	}
	digits, err := Open("digits", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if digits.Train.(*table).columns != nil {
		t.Error("digits are images, whose pixels are scaled together")
	}
}
