package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace-ml/millrace/internal/terminal"
)

// allWord is the argument with which help shows everything.
const allWord = "all"

// addHelp adds help to a program: -h and "help VERB" print what most users need, "help VERB all" prints everything.
func addHelp(root *cobra.Command) {
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { printHelp(c, false) })
	root.InitDefaultHelpFlag()
	each(root, func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		c.Flags().Lookup("help").Usage = "print this help"
	})
	root.InitDefaultVersionFlag()
	root.Flags().Lookup("version").Usage = "print the version"
	markdown := false
	help := &cobra.Command{
		Use: "help [VERB] [all]", Short: "Print what a verb does; with all, its rare flags and details too",
		Example: "  " + root.Name() + " help schedule compare", SilenceErrors: true,
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			verb, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []cobra.Completion
			for _, v := range verb.Commands() {
				if v.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(v.Name(), v.Short))
				}
			}
			if verb.HasParent() {
				names = append(names, cobra.CompletionWithDesc(allWord, "all its flags"))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			if markdown {
				_, err := fmt.Fprint(c.OutOrStdout(), Markdown(c.Root()))
				return err
			}
			all := len(args) > 1 && args[len(args)-1] == allWord
			if all {
				args = args[:len(args)-1]
			}
			verb, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return BadInput(noVerb(verb, rest[0]))
			}
			printHelp(verb, all)
			return nil
		},
	}
	help.Flags().BoolVar(&markdown, "markdown", false, "print all verbs as one Markdown page")
	if err := help.Flags().MarkHidden("markdown"); err != nil {
		panic(err) // cannot happen: the flag was added above
	}
	root.SetHelpCommand(help)
}

// printHelp prints what a verb does, how it is used, and its flags by group.
func printHelp(c *cobra.Command, all bool) {
	s := terminal.Of(c.OutOrStdout())
	var b strings.Builder
	text := c.Long
	if text == "" {
		text = c.Short
	}
	said := c.Annotations[more]
	headings, flags, left := grouped(c, all)
	switch {
	case all && said != "":
		text += "\n\n" + said
	case left > 0: // leave flags out, so that the help fits a screen
		text, _, _ = strings.Cut(text, "\n\n")
	}
	b.WriteString(prose(s, text))
	heading := func(name string) { b.WriteString("\n" + s.Paint(terminal.Bold, name) + "\n") }
	heading("Usage")
	if c.Runnable() && (c.HasParent() || !c.HasAvailableSubCommands()) {
		b.WriteString(s.Wrap("  ", "      ", c.UseLine()))
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("  " + c.CommandPath() + " VERB [flags]\n")
	}
	if c.Example != "" {
		heading("Examples")
		for i, line := range strings.Split(c.Example, "\n") {
			if left == 0 || i < mostExamples {
				b.WriteString(command(s, line))
			}
		}
	}
	verbs(&b, s, c, heading)
	if left > 0 {
		b.WriteString("\n")
		heading = func(name string) { b.WriteString(s.Paint(terminal.Bold, name) + "\n") }
	}
	// All groups share one column, so that their texts are aligned.
	var names [][]string
	widest := 0
	for _, group := range flags {
		var of []string
		for _, f := range group {
			name := spelled(f)
			of, widest = append(of, name), max(widest, terminal.Width(name))
		}
		names = append(names, of)
	}
	for i, group := range flags {
		heading(headings[i])
		for k, f := range group {
			b.WriteString(definition(s, names[i][k], widest, usage(f)))
		}
	}
	path := strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
	switch {
	case left > 0:
		b.WriteString("\n" + s.Wrap("", "", fmt.Sprintf("%s help %s all shows %s, and the details.", c.Root().Name(),
			path, terminal.Count(left, "more flag"))))
	case said != "" && !all:
		b.WriteString("\n" + s.Wrap("", "", fmt.Sprintf("%s help %s all says more.", c.Root().Name(), path)))
	}
	_, _ = fmt.Fprint(c.OutOrStdout(), b.String()) // if the screen fails, it cannot show the error either
}

// mostExamples is the number of examples that -h prints for a verb with many flags.
const mostExamples = 2

// verbs writes the verbs of c to b, by group.
func verbs(b *strings.Builder, s terminal.Screen, c *cobra.Command, heading func(string)) {
	widest := 0
	list := func(group string) (of []*cobra.Command) {
		for _, v := range c.Commands() {
			if v.GroupID == group && (v.IsAvailableCommand() || v.Name() == "help") {
				of = append(of, v)
			}
		}
		return of
	}
	for _, v := range c.Commands() {
		if v.IsAvailableCommand() {
			widest = max(widest, len(v.Name()))
		}
	}
	show := func(title string, of []*cobra.Command) {
		if len(of) == 0 {
			return
		}
		heading(title)
		for _, v := range of {
			b.WriteString(definition(s, v.Name(), widest, v.Short))
		}
	}
	for _, g := range c.Groups() {
		show(g.Title, list(g.ID))
	}
	rest := "Verbs"
	if len(c.Groups()) > 0 {
		rest = "More"
	}
	show(rest, list(""))
}

// definition lays out a term and its meaning in two columns.
func definition(s terminal.Screen, term string, widest int, text string) string {
	hang := strings.Repeat(" ", 2+widest+2)
	if widest > s.Columns/2 { // no room beside the terms
		return "  " + s.Paint(terminal.Cyan, term) + "\n" + s.Wrap("      ", "      ", text)
	}
	gap := strings.Repeat(" ", widest-terminal.Width(term)+2)
	return s.Wrap("  "+s.Paint(terminal.Cyan, term)+gap, hang, text)
}

// spelled returns a flag as it is typed: "-o, --out DIR".
func spelled(f *pflag.Flag) string {
	name := "    --" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", --" + f.Name
	}
	if f.Value.Type() == "bool" {
		return name
	}
	what := noted(f, takes)
	if what == "" {
		what, _ = pflag.UnquoteUsage(f)
		what = strings.ToUpper(what)
	}
	if f.NoOptDefVal != "" { // the value is optional, and needs an =
		return name + "[=" + what + "]"
	}
	return name + " " + what
}

// usage returns a flag's text. It adds the flag's default, unless the text mentions the default, or the default is zero
// or empty.
func usage(f *pflag.Flag) string {
	_, text := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "", "0", "false", "[]", "0s":
		return text
	}
	if strings.Contains(text, "(default") {
		return text
	}
	return text + " (default: " + strings.Trim(f.DefValue, "[]") + ")"
}

// prose lays out a long help text. It wraps paragraphs, but keeps indented lines apart. An indented line that is too
// long is wrapped as well. Its continuation is aligned with the text after its term, or is indented by two more columns
// if it has no term.
func prose(s terminal.Screen, text string) string {
	var b strings.Builder
	for i, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 {
			b.WriteString("\n")
		}
		var running []string
		flush := func() {
			if len(running) > 0 {
				b.WriteString(s.Wrap("", "", strings.Join(running, " ")))
				running = nil
			}
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			if !strings.HasPrefix(line, " ") {
				running = append(running, line)
				continue
			}
			flush()
			b.WriteString(indented(s, line))
		}
		flush()
	}
	return b.String()
}

// indented lays out one line of a list.
func indented(s terminal.Screen, line string) string {
	if terminal.Width(line) <= s.Columns {
		return line + "\n"
	}
	body := strings.TrimLeft(line, " ")
	lead := line[:len(line)-len(body)]
	if gap := strings.Index(body, "  "); gap > 0 {
		rest := strings.TrimLeft(body[gap:], " ")
		term := line[:len(line)-len(rest)]
		return s.Wrap(strings.ReplaceAll(term, " ", "\u00a0"), strings.Repeat(" ", len(term)), rest)
	}
	return s.Wrap(lead, lead+"  ", body)
}

// together joins each long flag with its value, so that both stay on one line.
func together(words []string) (out []string) {
	for i, word := range words {
		last := len(out) - 1
		if i > 1 && strings.HasPrefix(words[i-1], "-") && len(words[i-1]) > 2 && !strings.HasPrefix(word, "-") {
			out[last] += " " + word
			continue
		}
		out = append(out, word)
	}
	return out
}

// command lays out an example so that it can be copied. A long one is broken with backslashes at the ends of lines.
func command(s terminal.Screen, line string) string {
	const hang = "      "
	var b strings.Builder
	at, n := "", 0
	for _, word := range together(strings.Fields(line)) {
		switch wide := terminal.Width(word); {
		case at == "":
			at, n = "  "+word, 2+wide
		case n+1+wide+2 > s.Columns && n > len(hang):
			b.WriteString(at + " \\\n")
			at, n = hang+word, len(hang)+wide
		default:
			at, n = at+" "+word, n+1+wide
		}
	}
	b.WriteString(at + "\n")
	return b.String()
}
