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

// TestMain collects garbage rarely, because a search simulates thousands of small Programs and keeps none of them.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}

// checking is locked while rapid reads the number of cases of a property.
var checking sync.Mutex

// checkSearches checks a property whose cases are whole searches. It divides rapid's number of cases by oneOf. Tests
// that call checkSearches may run in parallel with each other, but not with tests that call rapid directly.
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
