package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Word is a flag's name, which stands for the same in every verb that has it.
type Word struct {
	Name  string
	Takes string // what its value is, in capitals, like DIR; empty of flags that are on or off
	// Rare words are shown by help VERB all; -h counts them, in verbs with many flags.
	Rare bool
	// Values complete what is typed of its value; nil: nothing does.
	Values cobra.CompletionFunc
}

// Group is words that help shows under one heading, the most used first.
type Group struct {
	Name  string
	Words []Word
}

// Annotations of flags and verbs.
const (
	groupOf = "group" // of a flag: the group's name, and the word's place in it
	takes   = "takes"
	rare    = "rare"
	more    = "more" // of a verb: what its long help says beside
)

// other is the group of flags that no group has, the last one.
const (
	other     = "Other"
	lastGroup = 99
)

// describe gives the flags of all verbs what their names say.
func describe(root *cobra.Command, groups []Group) {
	each(root, func(c *cobra.Command) {
		for g, group := range groups {
			if group.Name == other {
				g = lastGroup
			}
			for w, word := range group.Words {
				if f := c.LocalFlags().Lookup(word.Name); f != nil {
					word.describe(c, f, fmt.Sprintf("%02d %03d %s", g, w, group.Name))
				}
			}
		}
	})
}

func (w Word) describe(c *cobra.Command, f *pflag.Flag, group string) {
	note(f, groupOf, group)
	if w.Rare {
		note(f, rare, "")
	}
	if f.Value.Type() == "bool" {
		return
	}
	note(f, takes, w.Takes)
	values := w.Values
	if values == nil {
		values = cobra.NoFileCompletions
	}
	_ = c.RegisterFlagCompletionFunc(f.Name, values) // the flag is there, and is described once
}

// note puts an annotation on a flag.
func note(f *pflag.Flag, key string, values ...string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[key] = values
}

// noted is an annotation of a flag.
func noted(f *pflag.Flag, key string) string {
	if values := f.Annotations[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// each calls f for a verb and all below it.
func each(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, verb := range c.Commands() {
		each(verb, f)
	}
}

// More gives a verb text that help VERB all shows behind its long help.
func More(c *cobra.Command, text string) { annotate(c, more, text) }

func annotate(c *cobra.Command, key, value string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[key] = value
}

// Formerly has a verb take flags by names that they had once, which no help shows: old names and their new ones.
func Formerly(c *cobra.Command, names map[string]string) {
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if now, ok := names[name]; ok {
			name = now
		}
		return pflag.NormalizedName(name)
	})
}

// Unasked has help leave out flags that a verb takes and makes nothing of.
func Unasked(c *cobra.Command, names ...string) {
	for _, name := range names {
		c.Flags().Lookup(name).Hidden = true
	}
}

// Output gives a verb the flag for the file that it writes.
func Output(c *cobra.Command, at *string, doc string) {
	c.Flags().StringVarP(at, "out", "o", "", doc)
	Writes(c, "out")
	Formerly(c, map[string]string{"output": "out"})
}

// JSON gives a verb the flag --json.
func JSON(c *cobra.Command, at *bool) {
	c.Flags().BoolVar(at, "json", false, "print the result as JSON")
}

// grouped is the flags of a verb that help shows, by group, and how many rare ones it leaves out.
func grouped(c *cobra.Command, all bool) (headings []string, flags [][]*pflag.Flag, left int) {
	byGroup := map[string][]*pflag.Flag{}
	order := map[*pflag.Flag]string{}
	n := 0
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			n++
		}
	})
	see := func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if _, is := f.Annotations[rare]; is && !all && n > manyFlags {
			left++
			return
		}
		at := noted(f, groupOf)
		if at == "" {
			at = fmt.Sprintf("%02d 999 %s", lastGroup, other)
		}
		order[f] = at
		byGroup[at[:2]] = append(byGroup[at[:2]], f)
	}
	c.LocalFlags().VisitAll(see)
	c.InheritedFlags().VisitAll(see)
	var keys []string
	for key := range byGroup {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		of := byGroup[key]
		slices.SortStableFunc(of, func(a, b *pflag.Flag) int { return strings.Compare(order[a], order[b]) })
		headings, flags = append(headings, order[of[0]][len("00 000 "):]), append(flags, of)
	}
	return headings, flags, left
}

// manyFlags is how many flags a verb has at most without leaving any out of -h.
const manyFlags = 16
