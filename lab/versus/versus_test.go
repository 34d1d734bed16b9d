package versus

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/lab/record"
)

// Builds take turns at going first, the first visits are not counted, and the interval decides whether a build is
// slower.
func TestCompareAlternates(t *testing.T) {
	old, new := &Build{Name: "old"}, &Build{Name: "new"}
	var order []string
	slow := map[*Build]float64{old: 1, new: 2}
	c := Case{Name: "a", Limit: 0.95, Pairs: 6, Prepare: func(context.Context, *Build, *Build) (func(context.Context,
		*Build) (float64, error), error) {
		return func(_ context.Context, b *Build) (float64, error) {
			order = append(order, b.Name)
			return slow[b], nil
		}, nil
	}}
	row, err := Compare(t.Context(), old, new, c, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Fields("old new new old old new new old old new new old old new"); !slices.Equal(order, want) {
		t.Errorf("visited %v, want %v", order, want)
	}
	if row.Speed != 0.5 || row.Interval.Lo != 0.5 || !row.Slower || len(row.OldS) != 6 || row.NewMedianS != 2 {
		t.Errorf("twice as slow: %+v", row)
	}
	slow[new] = 0.8
	if row, err = Compare(t.Context(), old, new, c, &bytes.Buffer{}); err != nil || row.Slower || row.Speed != 1.25 {
		t.Errorf("faster: %+v, %v", row, err)
	}
	c.Pairs = 5
	if _, err := Compare(t.Context(), old, new, c, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(),
		"6 at least") {
		t.Errorf("5 pairs: %v", err)
	}
}

// Errors by hand: a build that predicts 1 s and takes 2, 3 and 4 s is wrong by a half, two thirds and three quarters.
func TestSplitsAreCounted(t *testing.T) {
	s := Splits{Plans: []Split{{"a", 1, 2}, {"b", 1, 4}, {"c", 1, 3}}}
	s.count()
	if s.Ratio != 3 || s.Lower != 2 || s.Upper != 4 || s.OffMedian != 2./3 || s.OffWorst != 0.75 {
		t.Errorf("%+v", s)
	}
	for i, plan := range RandomSplits(1, 50, 7, 3) {
		cuts := strings.Split(plan[1], ",")
		if len(cuts) != 2 || cuts[0] >= cuts[1] || cuts[0] < "1" || cuts[1] > "6" {
			t.Errorf("plan %d: %v", i, plan)
		}
	}
}

// A build that fails is named with its command line and its last output. Results are read as they were written.
func TestABuildThatFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "millrace")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho first >&2\necho \"no $1\" >&2\nexit 2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBuild("new", path, "", dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.took(t.Context(), "plan", "--json"); err == nil || !strings.Contains(err.Error(),
		"the new build: millrace plan --json: exit status 2: no plan") {
		t.Errorf("a build that fails: %v", err)
	}
	r := Results{Head: record.Begin(Kind, "x"), New: b, Rows: []Row{{Name: "a", OldS: []float64{1, 2, 3, 4, 5, 6},
		NewS: []float64{1, 1, 1, 1, 1, 1}}}}
	if err := r.Rows[0].judge(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "r.json")
	if err := record.Write(file, &r); err != nil {
		t.Fatal(err)
	}
	again, err := record.Read[Results](file)
	if err != nil || again.New.SHA256 != b.SHA256 || again.Rows[0].OldS[5] != 6 || again.Rows[0].Speed != 3.5 {
		t.Errorf("read again: %+v, %v", again, err)
	}
	again.Rows[0].NewS[0] = 7
	want := "a: speed has the interval 1 to 6; that of its 6"
	if err := again.Recount(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("another time: %v", err)
	}
}
