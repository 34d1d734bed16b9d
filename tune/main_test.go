package tune

import (
	"flag"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// TestMain lets garbage lie: a search simulates thousands of small Programs and keeps none of them.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}

// checking is held while rapid reads how many cases a property has.
var checking sync.Mutex

// checkSearches checks a property whose every case is whole searches, on one of so many of rapid's
// number of cases. Tests that do may be parallel to each other, and to none that asks rapid itself.
func checkSearches(t *testing.T, oneOf int, property func(*rapid.T)) {
	t.Helper()
	checking.Lock()
	checks := flag.Lookup("rapid.checks").Value
	before := checks.String()
	restore := sync.OnceFunc(func() {
		defer checking.Unlock()
		if err := checks.Set(before); err != nil {
			t.Error(err)
		}
	})
	defer restore()
	n, err := strconv.Atoi(before)
	if err != nil {
		t.Fatal(err)
	}
	if err := checks.Set(strconv.Itoa((n + oneOf - 1) / oneOf)); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		restore()
		property(t)
	})
}
