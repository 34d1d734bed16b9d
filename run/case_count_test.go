package run

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
)

// These are the least numbers of trained cases. A case is a model with a plan, an order and a policy, whose weights are
// compared, bit by bit, with those of a sequential program. Tests count their cases in the ledger. If a run of all
// tests has fewer cases than these, the package fails.
const (
	leastCases      = 1000 // with the engine ref
	leastTorchCases = 60   // with torch, where it is installed
)

var ledger = struct {
	sync.Mutex
	cases map[string]map[string]int // by engine and order
}{cases: map[string]map[string]int{}}

// equalCase compares a case's weights with those of its twin, bit by bit, and counts the case if they are equal.
func equalCase(c Config, want, got map[string]process.Weight) error {
	if err := sameWeights(want, got); err != nil {
		return err
	}
	name := c.Plan.Schedule
	if w := schedule.Policy(c.Plan.Weights); w != schedule.Sync && w != "" {
		name += " " + string(w)
	}
	for _, s := range c.Plan.Stages {
		if len(s.Devices) > 1 {
			name += ", replicas"
			if c.Plan.Replication == string(schedule.Split) {
				name += " that split"
			}
			break
		}
	}
	if c.Plan.PostValidate {
		name += ", validated later"
	}
	ledger.Lock()
	defer ledger.Unlock()
	engine, _, _ := strings.Cut(c.Engine.Name(), " ") // torch's name includes its version
	of := ledger.cases[engine]
	if of == nil {
		of = map[string]int{}
		ledger.cases[engine] = of
	}
	of[name]++
	return nil
}

// closeLedger checks the counts at the end of the package's tests.
func closeLedger(code int) {
	whole := true
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		whole = whole && flag.Lookup(name).Value.String() == ""
	}
	least := map[string]int{"ref": leastCases}
	if _, err := openTorch(); err == nil {
		least["torch"] = leastTorchCases
	}
	for _, engine := range slices.Sorted(maps.Keys(least)) {
		total := 0
		for _, n := range ledger.cases[engine] {
			total += n
		}
		if flag.Lookup("test.v").Value.String() == "true" {
			fmt.Printf("%d cases with %s were bit-equal to a sequential program:\n", total, engine)
			for _, name := range slices.Sorted(maps.Keys(ledger.cases[engine])) {
				fmt.Printf("  %5d  %s\n", ledger.cases[engine][name], name)
			}
		}
		if whole && code == 0 && total < least[engine] {
			fmt.Printf("%d cases with %s were compared with a sequential program; %d are due\n", total, engine, least[engine])
			code = 1
		}
	}
	os.Exit(code)
}
