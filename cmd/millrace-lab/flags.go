package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/bench"
)

// trainOptions returns the options of train that a benchmark takes.
func trainOptions(names ...string) []job.Option {
	all := slices.DeleteFunc(slices.Clone(job.TrainOptions),
		func(o job.Option) bool { return !slices.Contains(names, o.Name) })
	for i := range all {
		all[i].Short = "" // no short names, because -o is the benchmark's file of results
	}
	return all
}

// measuring says how much a benchmark measures, and how it prints the result. A count that is 0 gets no flag.
// Exception: `steps` gets a flag if stepsDoc is set.
type measuring struct {
	pairs  int // alternating pairs of a comparison
	rounds int // each round visits every command once
	visits int // visits to each candidate, when the best one is searched for
	steps  int // steps of each visit
	asJSON bool
	output string // file for the results; empty: none

	stepsFlag string
	stepsDoc  string // text of the flag for steps; set if the benchmark finds out the number of steps when the flag is 0
}

// add adds a flag for each count that is not 0, with the count as its default. If stepsDoc is set, `steps` gets a flag
// even if it is 0. `stepsFlag` is the name of the flag for `steps`. A job's --steps means something else, so the name
// cannot be steps.
func (m *measuring) add(c *cobra.Command, stepsFlag string) {
	m.stepsFlag = stepsFlag
	f := c.Flags()
	for _, count := range []struct {
		name, doc string
		at        *int
	}{
		{"pairs", "alternating pairs of each comparison", &m.pairs},
		{"rounds", "times that each is visited", &m.rounds},
		{"visits", "visits to each candidate when the best settings are looked for", &m.visits},
		{stepsFlag, "training steps of a visit", &m.steps},
	} {
		if *count.at == 0 && count.name == stepsFlag && m.stepsDoc != "" {
			count.doc = m.stepsDoc
		} else if *count.at == 0 {
			continue
		}
		f.IntVar(count.at, count.name, *count.at, count.doc)
	}
	f.BoolVar(&m.asJSON, "json", false, "print the result as JSON")
	resultsFlag(c, &m.output)
}

// resultsFlag adds the flag that names the file of results.
func resultsFlag(c *cobra.Command, at *string) {
	c.Flags().StringVarP(at, "output", "o", *at, "write the results to this `file`")
	cli.Writes(c, "output")
}

// check refuses counts that are too small to give a result. It skips counts without a flag, and the number of steps if
// the benchmark finds that out itself. `leastSteps` is the minimal number of steps of a visit; `why` is the reason.
func (m *measuring) check(c *cobra.Command, leastSteps int, why string) error {
	for _, count := range []struct {
		name      string
		is, least int
		why       string
	}{
		{"pairs", m.pairs, bench.LeastRepeats, "for an interval around their median"},
		{"rounds", m.rounds, bench.LeastRepeats, "for an interval around their median"},
		{"visits", m.visits, 1, "to choose by"},
		{m.stepsFlag, m.steps, leastSteps, why},
	} {
		if count.name == m.stepsFlag && m.stepsDoc != "" && !c.Flags().Changed(count.name) {
			continue
		}
		if c.Flags().Lookup(count.name) != nil && count.is < count.least {
			return cli.BadInput(fmt.Errorf("--%s %d; give %d at least, %s", count.name, count.is, count.least,
				count.why))
		}
	}
	return nil
}
