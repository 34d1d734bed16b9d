package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Markdown returns the verbs of a program with their examples and flags as one Markdown page. It leaves out help,
// completion and hidden verbs.
func Markdown(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Commands of %s\n\n<!-- drawn by: %s help --markdown -->\n\nOld names of flags still work "+
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

// verbInMarkdown writes one verb: what it does, its usage, examples and flags.
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

// paragraphInMarkdown converts a paragraph of a help text. Indented lines, which are lists, keep their layout.
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

// escaped escapes the characters that begin markup in Markdown: < * _ [ and the backquote.
func escaped(text string) string {
	return strings.NewReplacer("<", "&lt;", "*", `\*`, "_", `\_`, "[", `\[`, "`", "\\`").Replace(text)
}

// inCell escapes text for a cell of a table.
func inCell(text string) string { return strings.ReplaceAll(escaped(text), "|", `\|`) }

// spelledInMarkdown returns a flag as it is typed, without the spaces that align flags that have no short form.
func spelledInMarkdown(f *pflag.Flag) string {
	return strings.ReplaceAll(strings.TrimLeft(spelled(f), " "), "|", `\|`)
}
