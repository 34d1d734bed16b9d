// Package tabletest runs experiments for the tests of their tables.
//
// Input: the name of an experiment and its Options. Output: its Table. These fail the test: unknown experiments, rows
// that lack a field, tables without rows or a source, and rows that Find does not find.
package tabletest

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/lab/reproduce/table"
)

// Of runs an experiment and returns its table.
func Of(t *testing.T, name string, o table.Options) *table.Table {
	t.Helper()
	e, err := table.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	found, err := e.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Long skips a test that takes long, unless MILLRACE_SOAK is set. `make papers` sets it.
func Long(t *testing.T) {
	t.Helper()
	if os.Getenv("MILLRACE_SOAK") == "" {
		t.Skip("it takes long: make papers runs it (MILLRACE_SOAK is not set)")
	}
}

// Run runs an experiment on analytic costs and checks that its rows are complete.
func Run(t *testing.T, name string) *table.Table {
	t.Helper()
	found := Of(t, name, table.Options{})
	if len(found.Rows) == 0 || found.Source == "" {
		t.Errorf("%s has no rows or no source", name)
	}
	for _, r := range found.Rows {
		if r.What == "" || r.Paper == "" || r.Ours == "" || r.Difference == "" {
			t.Errorf("%s: a row is incomplete: %+v", name, r)
		}
	}
	return found
}

// Find returns the row with this name.
func Find(t *testing.T, of *table.Table, what string) table.Row {
	t.Helper()
	i := slices.IndexFunc(of.Rows, func(r table.Row) bool { return r.What == what })
	if i < 0 {
		t.Fatalf("%s has no row %q", of.Name, what)
	}
	return of.Rows[i]
}

// Chain writes a profile of a chain of layers, in the format of the published profiles. The chain has an input and
// twenty layers. Each layer computes less than the layer before it, and has more weights. All durations and bytes are
// multiplied by `times`.
func Chain(t *testing.T, folder, name string, times float64) {
	t.Helper()
	var b strings.Builder
	const layers = 20
	for i := range layers + 1 {
		work, weights := 40-1.5*float64(i), math.Pow(1.6, float64(i))*1e5
		if i == 0 {
			work, weights = 0, 0
		}
		fmt.Fprintf(&b, "node%d -- Layer -- forward_compute_time=%g, backward_compute_time=%g, ",
			i+1, times*work, times*2*work)
		fmt.Fprintf(&b, "activation_size=%.1f, parameter_size=%.1f\n", times*4e7/float64(i+1), times*weights)
	}
	for i := range layers {
		fmt.Fprintf(&b, "\tnode%d -- node%d\n", i+1, i+2)
	}
	if err := os.WriteFile(filepath.Join(folder, name), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
