package listing

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
)

// listedSchedule is a family of schedules as ls prints it.
type listedSchedule struct {
	Name     string            `json:"name"`
	Doc      string            `json:"doc"`
	Weights  []schedule.Policy `json:"weights"`
	Flushes  bool              `json:"flushes"` // a step ends before the next begins
	Also     []string          `json:"also"`    // other names of the family
	Splits   bool              `json:"splits_backwards"`
	Choosing bool              `json:"chunks"` // the number of stages on a worker can be chosen
}

// SchedulesCommand returns the verb "schedule ls".
func SchedulesCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls", Short: "List the schedules, with the weight policies that each can keep",
		Long: `ls lists the schedules that --schedule takes, with their sources and the weight policies that each allows.
Policies other than sync and elastic train without a flush. millrace schedule NAME draws a schedule, and millrace
schedule compare ranks all of them.`,
		Example: "  millrace schedule ls\n  millrace schedule ls --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var all []listedSchedule
			for _, f := range family.All() {
				of := listedSchedule{Name: f.Name, Doc: f.Doc, Flushes: !f.Asynchronous(), Splits: f.Halves,
					Choosing: f.Chunks < 0, Also: []string{}}
				of.Also = append(of.Also, family.Aliases(f.Name)...)
				for _, p := range schedule.Policies() {
					if f.AdmitsPolicy(p) {
						of.Weights = append(of.Weights, p)
					}
				}
				all = append(all, of)
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), all)
			}
			return printSchedules(c.OutOrStdout(), all)
		},
	}
	cli.JSON(c, &asJSON)
	return c
}

func printSchedules(w io.Writer, all []listedSchedule) error {
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "schedule"}, {Heading: "weights", Wraps: true},
		{Heading: "also called", Wraps: true, Spare: 1}, {Heading: "what it is", Wraps: true}}}
	for _, f := range all {
		var weights []string
		for _, p := range f.Weights {
			weights = append(weights, string(p))
		}
		t.Add(f.Name, strings.Join(weights, ", "), strings.Join(slices.Sorted(slices.Values(f.Also)), ", "), f.Doc)
	}
	s := terminal.Of(w)
	if err := t.Write(w, s); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, "\n"+s.Wrap("", "", cli.Called()+" schedule NAME draws one; "+cli.Called()+
		" schedule compare ranks them."))
	return err
}
