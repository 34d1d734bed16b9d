package clitest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// HelpIsShort checks the help of all verbs. A flag has one line of at most 80 characters; longer text belongs in the
// verb's long help. Lines of a verb's help have at most 120 columns. Each verb that can be run has an example.
func HelpIsShort(t *testing.T, root *cobra.Command) {
	const most, widest = 80, 120
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if c.Runnable() && c.Example == "" && c.HasParent() {
			t.Errorf("%s has no example", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if n := utf8.RuneCountInString(f.Usage); n == 0 || n > most || strings.Contains(f.Usage, "\n") {
				t.Errorf("%s --%s: its help has %d characters; one line of 1 to %d: %q", c.CommandPath(), f.Name, n,
					most, f.Usage)
			}
		})
		for line := range strings.SplitSeq(c.Short+"\n"+c.Long, "\n") {
			if n := utf8.RuneCountInString(line); n > widest {
				t.Errorf("%s: a line of its help has %d columns; %d at most: %q", c.CommandPath(), n, widest, line)
			}
		}
		for _, verb := range c.Commands() {
			look(verb)
		}
	}
	look(root)
}

// Shown is a command in a document, with the output that the document shows.
type Shown struct {
	Args []string
	Want []string
}

// ShownIn returns the commands of a program in the indented blocks of a document.
func ShownIn(t *testing.T, path, program string) []Shown {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []Shown
	joined := strings.ReplaceAll(string(text), " \\\n", " ")
	open := false // a command's output goes on until the next line of prose
	for line := range strings.SplitSeq(joined, "\n") {
		open = open && (line == "" || strings.HasPrefix(line, "    "))
		line, indented := strings.CutPrefix(line, "    ")
		if command, ok := strings.CutPrefix(line, "$ bin/"+program+" "); ok {
			all, open = append(all, Shown{Args: strings.Fields(command)}), true
		} else if indented && open {
			all[len(all)-1].Want = append(all[len(all)-1].Want, line)
		}
	}
	return all
}

// CommandsAreThere checks that the documents name only verbs and flags that a program has.
func CommandsAreThere(t *testing.T, root func() *cobra.Command) {
	t.Helper()
	program := root().Name()
	inline := regexp.MustCompile("`(?:bin/)?" + program + " ([^`]+)`")
	for _, path := range []string{"../../README.md", "../../BENCHMARKS.md", "../../ARCHITECTURE.md",
		"../../docs/papers.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var commands [][]string
		for _, s := range ShownIn(t, path, program) {
			commands = append(commands, s.Args)
		}
		for _, m := range inline.FindAllStringSubmatch(string(text), -1) {
			commands = append(commands, strings.Fields(m[1]))
		}
		for _, args := range commands {
			if slices.Contains(args, "VERB") {
				continue
			}
			if i := slices.Index(args, ">"); i >= 0 {
				args = args[:i]
			}
			verb, rest, err := root().Find(args)
			if err == nil {
				err = verb.ParseFlags(rest)
			}
			if err != nil || verb.Name() == program {
				t.Errorf("%s: %s %s: %v", path, program, strings.Join(args, " "), err)
			}
		}
	}
}
