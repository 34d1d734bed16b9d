package main

import (
	"path/filepath"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/lab/defaults"
)

// With default optimizer, rate and warm-up, each kind of built-in model learns suitable data. No loss exceeds 1.2 times
// the first loss.
func TestBuiltInModelsLearnByTheirDefaults(t *testing.T) {
	t.Parallel()
	p := clitest.Trainer(t)
	text, err := filepath.Abs("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	c := p.Command(t, nil)
	r := defaults.Runner{Program: c.Path, Env: c.Env, Text: text, Dir: p.Dir}
	for _, pair := range defaults.Small {
		one, err := r.Run(t.Context(), pair)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := one.Wrong(); wrong != "" {
			t.Errorf("%s: %s", pair.Name, wrong)
		}
	}
}
