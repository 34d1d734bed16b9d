package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/lab/benchmarks"
	"github.com/millrace-ml/millrace/lab/rooms"
	"github.com/millrace-ml/millrace/lab/site"
	"github.com/millrace-ml/millrace/report"
)

func roomsCommand() *cobra.Command {
	var write string
	var lines bool
	c := &cobra.Command{
		Use: "rooms [FOLDER]", Short: "Draw which packages of millrace import which, or count their lines",
		Example: "  millrace-lab rooms --write ARCHITECTURE.md\n  millrace-lab rooms --lines",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			if lines {
				return printSizes(c.OutOrStdout(), dir)
			}
			all, err := rooms.List(c.Context(), dir)
			if err != nil {
				return cli.BadInput(err)
			}
			if write == "" {
				return rooms.Draw(c.OutOrStdout(), all)
			}
			text, err := os.ReadFile(write)
			if err != nil {
				return cli.BadInput(err)
			}
			if text, err = rooms.Into(text, all); err != nil {
				return cli.BadInput(fmt.Errorf("%s: %w", write, err))
			}
			return document.WriteText(write, string(text))
		},
	}
	c.Flags().StringVar(&write, "write", "", "put the drawing between its marks in this document")
	cli.Writes(c, "write")
	c.Flags().BoolVar(&lines, "lines", false, "lines of each room, without tests and with them")
	return c
}

// printSizes prints the number of lines in each room.
func printSizes(w io.Writer, dir string) error {
	all, err := rooms.Sizes(dir)
	if err != nil {
		return cli.BadInput(err)
	}
	t := report.Table{Head: []string{"room", " files", " Go", " with tests", " other languages"}}
	var sum rooms.Size
	for _, s := range all {
		t.Add(s.Room, s.Files, s.Code, s.Code+s.Tests, s.Other)
		sum.Files, sum.Code, sum.Tests, sum.Other = sum.Files+s.Files, sum.Code+s.Code, sum.Tests+s.Tests, sum.Other+s.Other
	}
	t.Add("all", sum.Files, sum.Code, sum.Code+sum.Tests, sum.Other)
	return t.Markdown(w)
}

func benchmarksCommand() *cobra.Command {
	var write string
	c := &cobra.Command{
		Use: "benchmarks [FOLDER]", Short: "Make BENCHMARKS.md of what the benchmarks have left",
		Long: `benchmarks prints BENCHMARKS.md. It reads the files in lab/results of the repository in FOLDER, by default the
current folder. Each benchmark writes one of these files with -o, and make bench writes all. A value that is
in no file is "not measured". A file whose medians or intervals do not follow from its measurements is
refused.`,
		Example: "  millrace-lab bench peers --data text.txt -o lab/results/peers.json\n" +
			"  millrace-lab benchmarks --write BENCHMARKS.md",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			if write != "" {
				return cli.BadInput(benchmarks.Write(dir, write))
			}
			text, err := benchmarks.Page(dir)
			if err != nil {
				return cli.BadInput(err)
			}
			_, err = fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
	c.Flags().StringVar(&write, "write", "", "write the page to this file")
	cli.Writes(c, "write")
	return c
}

func docsCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use: "docs [FOLDER]", Short: "Build the documentation as a static site that needs no network",
		Long: `docs makes HTML pages from the Markdown pages of the repository in FOLDER, by default the current folder.
Links that lead nowhere, and pages that are in no group of the contents, are refused with file and line.`,
		Example: "  millrace-lab docs --out build/site",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			written, err := site.Build(dir, out)
			if err != nil {
				return cli.BadInput(err)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%d pages; open %s\n", len(written), filepath.Join(out, "index.html"))
			return err
		},
	}
	c.Flags().StringVarP(&out, "out", "o", "build/site", "folder of the site")
	return c
}
