package main

import (
	"os"
	"testing"
)

// TestThePageIsOfTheTypes checks that docs/formats.md is what `make gallery` makes from the sources.
func TestThePageIsOfTheTypes(t *testing.T) {
	want, err := formats("../..")
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Error("docs/formats.md is not of the types of today: make gallery")
	}
}
