package schedule_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
)

// TestTheMapHasEveryMethodOfAProgram: the package comment lists every method of Program exactly once.
func TestTheMapHasEveryMethodOfAProgram(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "// # The methods of Program")
	plan, _, found := strings.Cut(rest, "// The methods need fields")
	if !found {
		t.Fatal("the map is not where it was")
	}
	for m := range reflect.TypeFor[*schedule.Program]().Methods() {
		if n := len(regexp.MustCompile(`\b`+m.Name+`\b`).FindAllString(plan, -1)); n != 1 {
			t.Errorf("%s is %d times in the map", m.Name, n)
		}
	}
}
