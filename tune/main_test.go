package tune

import (
	"flag"
	"os"
	"runtime/debug"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestMain lets garbage lie: a search simulates thousands of small Programs and keeps none of them.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}

// checkSearches checks a property whose every case is whole searches, on one of so many of rapid's number of cases.
func checkSearches(t *testing.T, oneOf int, property func(*rapid.T)) {
	t.Helper()
	checks := flag.Lookup("rapid.checks").Value
	before := checks.String()
	n, err := strconv.Atoi(before)
	if err != nil {
		t.Fatal(err)
	}
	if err := checks.Set(strconv.Itoa((n + oneOf - 1) / oneOf)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := checks.Set(before); err != nil {
			t.Error(err)
		}
	}()
	rapid.Check(t, property)
}
