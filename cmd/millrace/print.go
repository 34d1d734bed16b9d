package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report"
)

// writeOut writes text to a file, or prints it if no file is given.
func writeOut(c *cobra.Command, file string, text []byte) error {
	if file == "" {
		_, err := c.OutOrStdout().Write(text)
		return err
	}
	if err := document.WriteText(file, string(text)); err != nil {
		return err
	}
	return cli.Wrote(c.OutOrStdout(), file)
}

// say prints the result of a verb, and the file that it was written to.
func say(w io.Writer, text, file string) error {
	if _, err := io.WriteString(w, terminal.Of(w).Wrap("", "  ", names.Shown(text))); err != nil {
		return err
	}
	return cli.Wrote(w, file)
}

// writeFacts writes names and their values.
func writeFacts(w io.Writer, rows [][2]string) error {
	for i := range rows {
		rows[i][1] = names.Shown(rows[i][1])
	}
	_, err := io.WriteString(w, terminal.Of(w).Facts(rows))
	return err
}

// section prints a table below a blank line.
func section(w io.Writer, t *report.Table) error {
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Text(w)
}
