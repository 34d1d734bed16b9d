package model_test

import (
	"testing"

	"github.com/millrace-ml/millrace/model"
)

// TestFamiliesSayHowTheyDiffer: no two families have the same description.
func TestFamiliesSayHowTheyDiffer(t *testing.T) {
	of := map[string]string{}
	for _, f := range model.Families() {
		if other, known := of[f.Doc]; known {
			t.Errorf("%s and %s are both %q", other, f.Name, f.Doc)
		}
		of[f.Doc] = f.Name
	}
}
