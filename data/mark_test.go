package data_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/data"
)

// A Mark changes with the number of rows, the classes and the seed. It changes with one number of any training row too,
// because numbers are scaled over all training rows. It does not depend on the file's name.
func TestAMarkTellsDataApart(t *testing.T) {
	rows := strings.Repeat("1,2,0\n4,3,1\n2,5,0\n", 100)
	mark := func(name, text string, seed uint64) data.Mark {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		set, err := data.Open(path, data.Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		m, err := data.MarkOf(set.Train)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	was := mark("a.csv", rows, 1)
	if was.Rows != 240 || len(was.SHA256) != 64 { // every fifth of 300 rows is held out
		t.Errorf("%+v", was)
	}
	if again := mark("b.csv", rows, 1); again != was {
		t.Errorf("read again it is %+v; was %+v", again, was)
	}
	for change, other := range map[string]data.Mark{
		"fewer rows":      mark("a.csv", rows[:len(rows)/2], 1),
		"one number":      mark("a.csv", strings.Replace(rows, "4,3", "4,9", 1), 1),
		"another seed":    mark("a.csv", rows, 2),
		"exchanged class": mark("a.csv", strings.NewReplacer(",0\n", ",1\n", ",1\n", ",0\n").Replace(rows), 1),
	} {
		if other == was {
			t.Errorf("%s: the mark stays %+v", change, was)
		}
	}
}

// A split with fewer samples than a Mark reads is read whole, and one without samples has only its length.
func TestAMarkOfFewSamples(t *testing.T) {
	split := data.Synthetic(3, []data.Field{{Name: "x", Shape: []int{2}, DType: data.Float}})
	short, err := data.MarkOf(split)
	if err != nil || short.Rows != 3 {
		t.Errorf("%+v, %v", short, err)
	}
	other, err := data.MarkOf(data.Synthetic(2, []data.Field{{Name: "x", Shape: []int{2}, DType: data.Float}}))
	if err != nil || other == short {
		t.Errorf("%+v and %+v, %v", short, other, err)
	}
}
