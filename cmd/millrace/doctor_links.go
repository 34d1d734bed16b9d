package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/hosts"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/together"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/launch"
)

// doctorLinks measures the links between the processes of the world, or what one process can measure alone. Rank 0
// prints them.
func doctorLinks(c *cobra.Command, output string, asJSON bool) error {
	w, err := launch.FromEnv(os.Environ())
	if err != nil {
		return cli.BadInput(err)
	}
	if w.Size == 1 {
		own := prepare.Own()
		workers := cmp.Or(w.Workers(), own.Cores()) // the number of workers that train uses
		return tellLinks(c, hosts.NewCrew(c.Context(), nil, nil, c.ErrOrStderr()), workers, output, asJSON)
	}
	party, err := together.Meet(c.Context(), w, together.Build())
	if err != nil {
		return err
	}
	defer party.Close()
	if w.Rank > 0 {
		_, err := party.Follow(c.Context(), hosts.Handlers(party, c.ErrOrStderr()))
		return err
	}
	others := party.Lead(c.Context())
	crew := hosts.NewCrew(others.Context(), party, others, c.ErrOrStderr())
	err = tellLinks(c, crew, w.Workers()/w.Size, output, asJSON)
	return errors.Join(err, others.Dismiss(err))
}

// tellLinks measures links, prints them and writes the file. `workers` is the number of workers in each process.
func tellLinks(c *cobra.Command, crew *hosts.Crew, workers int, output string, asJSON bool) error {
	meter := cli.StartMeter("doctor")
	defer meter.Stop()
	meter.Doing("asking the hosts")
	s, err := crew.Survey(workers)
	if err != nil {
		return err
	}
	rows, used, err := crew.Everything(s, meter.Work())
	if err != nil {
		return err
	}
	meter.Stop()
	described, err := s.Described(used)
	if err != nil {
		return err
	}
	if output != "" {
		if err := described.Write(output); err != nil {
			return err
		}
	}
	if asJSON {
		return cli.WriteJSON(c.OutOrStdout(), rows)
	}
	out := c.OutOrStdout()
	screen := terminal.Of(out)
	for line := range strings.Lines(s.Describe(s.Types(1))) {
		if _, err := io.WriteString(out, screen.Wrap("", "  ", names.Shown(strings.TrimSpace(line)))); err != nil {
			return err
		}
	}
	if err := writeLinks(out, screen, rows); err != nil || output == "" {
		return err
	}
	_, err = fmt.Fprintf(out, "%s  %s plan --cluster %s --profile PROFILE.json --model MODEL\n",
		screen.Wrap("", "", fmt.Sprintf("wrote %s: plan with it and a profile of each device type in it, as in", output)),
		cli.Called(), output)
	return err
}

// writeLinks prints a table with one row for each link and carrier.
func writeLinks(out io.Writer, screen terminal.Screen, rows []hosts.Row) error {
	t := terminal.Table{Columns: []terminal.Column{{Heading: "link"}, {Heading: "carrier"},
		{Heading: "connections", Number: true, Spare: 2}, {Heading: "latency", Number: true},
		{Heading: "there", Unit: "B/s", Group: "bandwidth", Number: true},
		{Heading: "back", Unit: "B/s", Group: "bandwidth", Number: true},
		{Heading: "between", Wraps: true, Spare: 1}}}
	for _, r := range hosts.OutermostFirst(rows) {
		t.Add(r.Level, r.Carrier, strconv.Itoa(r.Streams), terminal.Duration(r.LatencyS),
			terminal.Scaled(r.ThereBytesPerSecond), terminal.Scaled(r.BackBytesPerSecond), names.Shown(r.Between))
	}
	return t.Write(out, screen)
}
