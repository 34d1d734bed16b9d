package bapipe

import (
	"testing"

	"github.com/millrace-ml/millrace/lab/reproduce/tabletest"
)

// Closed forms are met to the last digit shown.
func TestBaPipesFormulasHold(t *testing.T) {
	for _, name := range []string{"bapipe-table1", "bapipe-table2"} {
		for _, r := range tabletest.Run(t, name).Rows {
			if r.Difference != "none" {
				t.Errorf("%s: %s: paper %s, ours %s", name, r.What, r.Paper, r.Ours)
			}
		}
	}
}
