package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Word is the name of a flag, which means the same in every verb.
type Word struct {
	Name  string
	Takes string // the kind of value in capitals, such as DIR; empty for switches
	// In verbs with more than manyFlags flags, Rare words are shown only by "help VERB all"; -h shows just their
	// number.
	Rare bool
	// Values completes a partly typed value; nil for no completion.
	Values cobra.CompletionFunc
}

// Group holds the words that help shows under one heading, the most used words first.
type Group struct {
	Name  string
	Words []Word
}

// These are the names of annotations of flags and verbs.
const (
	groupOf = "group" // of a flag: the group's number, the word's place in the group, and the group's name
	takes   = "takes"
	rare    = "rare"
	more    = "more" // of a verb: the text that "help VERB all" adds to its long help
)

// The constant `other` is the name of the last group, and lastGroup is its number. That group contains the flags that
// are in no other group.
const (
	other     = "Other"
	lastGroup = 99
)

// describe applies the groups to the flags of all verbs.
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
	_ = c.RegisterFlagCompletionFunc(f.Name, values) // cannot fail: the flag exists, and is described once
}

// note puts an annotation on a flag.
func note(f *pflag.Flag, key string, values ...string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[key] = values
}

// noted returns the first value of a flag's annotation.
func noted(f *pflag.Flag, key string) string {
	if values := f.Annotations[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// each calls f for a verb and all verbs below it.
func each(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, verb := range c.Commands() {
		each(verb, f)
	}
}

// More adds a text to a verb. "help VERB all" shows this text after the verb's long help.
func More(c *cobra.Command, text string) { annotate(c, more, text) }

func annotate(c *cobra.Command, key, value string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[key] = value
}

// Formerly makes a verb accept old names of flags, which help does not show. `names` maps each old name to the new one.
func Formerly(c *cobra.Command, names map[string]string) {
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if now, ok := names[name]; ok {
			name = now
		}
		return pflag.NormalizedName(name)
	})
}

// Unasked hides from help the flags that a verb accepts but does not use.
func Unasked(c *cobra.Command, names ...string) {
	for _, name := range names {
		c.Flags().Lookup(name).Hidden = true
	}
}

// Output adds the flag --out for the verb's output file.
func Output(c *cobra.Command, at *string, doc string) {
	c.Flags().StringVarP(at, "out", "o", "", doc)
	Writes(c, "out")
	Formerly(c, map[string]string{"output": "out"})
}

// JSON adds the flag --json.
func JSON(c *cobra.Command, at *bool) {
	c.Flags().BoolVar(at, "json", false, "print the result as JSON")
}

// grouped returns the flags that help shows, by group, and how many rare ones it leaves out.
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

// manyFlags is the number of flags up to which -h shows all of them.
const manyFlags = 16
