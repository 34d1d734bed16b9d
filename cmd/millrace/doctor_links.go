package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/hosts"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/together"
	"github.com/millrace-ml/millrace/launch"
)

// doctorLinks measures the links between all processes of the world, which rank 0 tells of.
func doctorLinks(c *cobra.Command, output string, asJSON bool) error {
	w, err := launch.FromEnv(os.Environ())
	if err != nil {
		return cli.BadInput(err)
	}
	if w.Size == 1 {
		own := prepare.Own()
		workers := cmp.Or(w.Workers(), own.Cores()) // as many as train has at once
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

// tellLinks measures, prints and writes. Each process is to have so many workers.
func tellLinks(c *cobra.Command, crew *hosts.Crew, workers int, output string, asJSON bool) error {
	s, err := crew.Survey(workers)
	if err != nil {
		return err
	}
	rows, used, err := crew.Everything(s)
	if err != nil {
		return err
	}
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
	fmt.Fprint(c.OutOrStdout(), s.Describe(s.Types(1)), linkTable(rows))
	if output != "" {
		fmt.Fprintf(c.OutOrStdout(), "wrote %s: plan with it and a profile of each device type in it, as in\n"+
			"  millrace plan --cluster %s --profile PROFILE.json --model MODEL\n", output, output)
	}
	return nil
}

func linkTable(rows []hosts.Row) string {
	var b strings.Builder
	writeLinks(&b, rows)
	return b.String()
}

func writeLinks(out io.Writer, rows []hosts.Row) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "link\tcarrier\tconnections\tlatency\tthere\tback\tbetween")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.Level, r.Carrier, r.Streams, cluster.FormatSeconds(r.LatencyS),
			cluster.FormatRate(r.ThereBytesPerSecond), cluster.FormatRate(r.BackBytesPerSecond), r.Between)
	}
}
