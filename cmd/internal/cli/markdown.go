package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Markdown writes every verb of a program with its examples and flags as one Markdown page.
func Markdown(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Commands of %s\n\n<!-- drawn by: %s help --markdown -->\n\nOld names of flags go on working "+
		"and are not listed.\n", root.Name(), root.Name())
	var of func(c *cobra.Command)
	of = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "completion" || c.Name() == "help" {
			return
		}
		verbInMarkdown(&b, c)
		for _, v := range c.Commands() {
			of(v)
		}
	}
	for _, g := range append(root.Groups(), &cobra.Group{}) {
		for _, v := range root.Commands() {
			if v.GroupID == g.ID {
				of(v)
			}
		}
	}
	return b.String()
}

// verbInMarkdown writes a verb: what it does, how it is used, examples and flags.
func verbInMarkdown(b *strings.Builder, c *cobra.Command) {
	level := 1 + strings.Count(c.CommandPath(), " ")
	fmt.Fprintf(b, "\n%s %s\n\n", strings.Repeat("#", level), c.CommandPath())
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	if said := c.Annotations[more]; said != "" {
		text += "\n\n" + said
	}
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		b.WriteString(paragraphInMarkdown(paragraph) + "\n")
	}
	if c.Runnable() {
		fmt.Fprintf(b, "    %s\n", c.UseLine())
	}
	if c.Example != "" {
		b.WriteString("\nFor example:\n\n")
		for line := range strings.SplitSeq(c.Example, "\n") {
			b.WriteString("    " + strings.TrimSpace(line) + "\n")
		}
	}
	headings, groups, _ := grouped(c, true)
	for i, flags := range groups {
		rows := ""
		for _, f := range flags {
			if f.Name != "help" {
				rows += fmt.Sprintf("| `%s` | %s |\n", spelledInMarkdown(f), inCell(usage(f)))
			}
		}
		if rows != "" {
			fmt.Fprintf(b, "\n| %s | what it does |\n|---|---|\n%s", headings[i], rows)
		}
	}
}

// paragraphInMarkdown keeps lists of a help text, whose lines are indented, as they are laid out.
func paragraphInMarkdown(text string) string {
	var b strings.Builder
	block := false
	for line := range strings.SplitSeq(text, "\n") {
		if indented := strings.HasPrefix(line, " "); indented != block {
			if b.Len() > 0 {
				b.WriteString("\n")
			}
			block = indented
		}
		if block {
			b.WriteString("    " + strings.TrimPrefix(line, "  ") + "\n")
		} else {
			b.WriteString(escaped(line) + "\n")
		}
	}
	return b.String()
}

// escaped is prose in which no character means anything to Markdown.
func escaped(text string) string {
	return strings.NewReplacer("<", "&lt;", "*", `\*`, "_", `\_`, "[", `\[`, "`", "\\`").Replace(text)
}

// inCell is prose in a table.
func inCell(text string) string { return strings.ReplaceAll(escaped(text), "|", `\|`) }

// spelledInMarkdown is a flag as it is given, without the space that aligns flags without a letter.
func spelledInMarkdown(f *pflag.Flag) string {
	return strings.ReplaceAll(strings.TrimLeft(spelled(f), " "), "|", `\|`)
}
