package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Help is read on a screen: a flag has one line with one idea, what is longer stands in the
// long help of its verb, and each verb shows how it is used.
func TestHelpIsShort(t *testing.T) {
	const most, widest = 80, 120
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if c.Runnable() && c.Example == "" && c.HasParent() {
			t.Errorf("%s has no example", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if n := utf8.RuneCountInString(f.Usage); n == 0 || n > most || strings.Contains(f.Usage, "\n") {
				t.Errorf("%s --%s: its help has %d characters; one line of 1 to %d: %q", c.CommandPath(), f.Name, n, most, f.Usage)
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
	look(command())
}
