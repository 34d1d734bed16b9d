package data

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Classes that are words are numbered by their order, whatever order the rows have; a heading is kept, and blanks
// around fields are not theirs.
func TestClassesOfACSVMayBeWords(t *testing.T) {
	text := "age, income, bought\n"
	words := []string{"yes", "no", "maybe"}
	for row := range 30 {
		text += fmt.Sprintf("%d, %d, %s\n", row, 2*row, words[row%3])
	}
	set, err := readCSV("people.csv", strings.NewReader(text), Options{Seed: 1})
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
	// Row 4 of the file, an even-numbered one of five, is the first that is kept: its class is words[4%3], "no".
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
	numbers, err := readCSV("a.csv", strings.NewReader(strings.Repeat("1,2,0\n1,2,1\n", 10)), Options{})
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
	if _, err := readCSV("a.csv", strings.NewReader(text), Options{}); err == nil ||
		!strings.Contains(err.Error(), "line 257") || !strings.Contains(err.Error(), "256 classes") {
		t.Errorf("257 classes: %v", err)
	}
}
