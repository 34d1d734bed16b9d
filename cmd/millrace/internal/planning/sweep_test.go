package planning

import (
	"strings"
	"testing"
)

// A sweep refuses by name flags that would have no effect. The command has all these flags.
func TestSweepsRefuseFlagsOfTheSearch(t *testing.T) {
	for _, name := range ofSearch {
		c := PlanCommand()
		f := c.Flags().Lookup(name)
		if f == nil {
			t.Errorf("there is no --%s", name)
			continue
		}
		f.Changed = true
		own := sweepFlags{on: true}
		if err := own.run(c, nil, false, false, ""); err == nil || !strings.Contains(err.Error(), "--"+name+" is of") {
			t.Errorf("--%s: %v", name, err)
		}
	}
}
