package cli

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/report/folder"
)

// argumentsAreInput turns wrong arguments of every verb below c into an error of input. If a verb's own check has no
// text for users, the error gets the text of wrongArguments.
func argumentsAreInput(c *cobra.Command) {
	for _, verb := range c.Commands() {
		if args := verb.Args; args != nil {
			verb.Args = func(c *cobra.Command, given []string) error {
				err := args(c, given)
				if err != nil && !errors.As(err, new(*ExitError)) {
					err = wrongArguments(c, given)
				}
				return BadInput(err)
			}
		}
		argumentsAreInput(verb)
	}
}

// wrongArguments returns an error that says which argument is missing or not expected, and what would be right. For an
// unknown verb it returns the error of noVerb.
func wrongArguments(c *cobra.Command, given []string) error {
	needed, most := takenBy(c)
	if most == 0 && c.HasAvailableSubCommands() && len(given) > 0 {
		return noVerb(c, given[0])
	}
	if len(given) == 0 || len(given) < len(needed) {
		example, _, _ := strings.Cut(strings.TrimSpace(c.Example), "\n")
		return fmt.Errorf("%s: %s is missing; give it, as in: %s", nameOf(c), append(needed, "an argument")[len(given)],
			cmp.Or(example, c.UseLine()))
	}
	extra := given[min(most, len(given)-1)]
	takes := "no argument"
	if most > 0 {
		takes = "no more than " + strings.Join(arguments(c), " ")
	}
	named := func(flag string) bool {
		f := c.Flags().Lookup(flag)
		return f != nil && !f.Hidden && most == 0
	}
	switch {
	case named("plan") && planAt(extra) != "":
		takes += "; a plan is given with --plan " + planAt(extra)
	case named("job") && isYAML(extra):
		takes += fmt.Sprintf("; a job file is given with --job %s, a model's file with --model %[1]s", extra)
	case named("model"):
		takes += "; a model is named with --model " + extra
	}
	return fmt.Errorf("%s: %q is too many: it takes %s; see %s -h", nameOf(c), extra, takes, c.CommandPath())
}

// isYAML reports whether `word` names a file whose name ends as those of YAML files.
func isYAML(word string) bool {
	ending := filepath.Ext(word)
	about, err := os.Stat(word)
	return err == nil && about.Mode().IsRegular() && (ending == ".yaml" || ending == ".yml")
}

// planAt returns the path of the plan that `word` names: a .json file, or a folder that holds a plan. It returns "" if
// `word` names neither.
func planAt(word string) string {
	if strings.HasSuffix(word, ".json") {
		return word
	}
	inside := filepath.Join(word, folder.PlanName)
	if about, err := os.Stat(inside); err != nil || !about.Mode().IsRegular() {
		return ""
	}
	return inside
}

// nameOf returns the name of a verb without the program's name, which every error begins with anyway.
func nameOf(c *cobra.Command) string { return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ") }

// arguments returns the arguments that a verb's usage line lists, up to its first flag. "[NAME | FILE]" is one
// argument.
func arguments(c *cobra.Command) (names []string) {
	inside := false
	for _, word := range strings.Fields(c.Use)[1:] {
		switch {
		case inside:
			names[len(names)-1] += " " + word
		case word == "--":
			continue
		case strings.HasPrefix(word, "-"):
			return names
		default:
			names = append(names, word)
		}
		inside = strings.Count(names[len(names)-1], "[") > strings.Count(names[len(names)-1], "]")
	}
	return names
}

// takenBy returns the names of the arguments that a verb needs, and the largest number of arguments that it accepts.
// "..." in the usage line means that any number of further arguments may follow.
func takenBy(c *cobra.Command) (needed []string, most int) {
	for _, name := range arguments(c) {
		if most++; strings.HasSuffix(name, "...") {
			most = math.MaxInt
		}
		if name == "..." {
			break
		}
		if bare := strings.TrimSuffix(name, "..."); !strings.HasPrefix(bare, "[") || !strings.HasSuffix(bare, "]") {
			needed = append(needed, name)
		}
	}
	return needed, most
}

// noVerb returns the error for an unknown verb; it suggests the closest name, if one is close.
func noVerb(c *cobra.Command, given string) error {
	var names []string
	for _, verb := range c.Commands() {
		if verb.IsAvailableCommand() {
			names = append(names, verb.Name())
		}
	}
	text := fmt.Sprintf("%s: there is no verb %q", nameOf(c), given)
	if !c.HasParent() {
		text = fmt.Sprintf("there is no verb %q", given)
	}
	if near := registry.Nearest(given, names); near != "" {
		return fmt.Errorf("%s; did you mean %s?", text, strconv.Quote(c.CommandPath()+" "+near))
	}
	if c.HasParent() {
		return fmt.Errorf("%s; %s", text, registry.Instead(given, names))
	}
	return fmt.Errorf("%s; see %s -h", text, c.Name())
}

// noFlag returns the error for an unknown flag; it suggests the closest name, if one is close. After an unknown verb it
// returns the error for that verb instead.
func noFlag(c *cobra.Command, err *pflag.NotExistError) error {
	if _, most := takenBy(c); most == 0 && c.HasAvailableSubCommands() && len(c.Flags().Args()) > 0 {
		return noVerb(c, c.Flags().Args()[0])
	}
	if _, behind, has := strings.Cut(c.Use, " -- "); has {
		return fmt.Errorf("there is no flag --%s before --; behind it stands %s; see %s -h", err.GetSpecifiedName(),
			behind, c.CommandPath())
	}
	if letters := err.GetSpecifiedShortnames(); letters != "" {
		return fmt.Errorf("there is no flag -%s; see %s -h", err.GetSpecifiedName(), c.CommandPath())
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := registry.Nearest(err.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("there is no flag --%s; did you mean --%s? see %s -h", err.GetSpecifiedName(), near,
			c.CommandPath())
	}
	if some := registry.Sharing(err.GetSpecifiedName(), names); len(some) > 0 && len(some) <= mostSharing {
		are := "is"
		if len(some) > 1 {
			are = "are"
		}
		return fmt.Errorf("there is no flag --%s; there %s --%s; see %s -h", err.GetSpecifiedName(), are,
			strings.Join(some, ", --"), c.CommandPath())
	}
	return fmt.Errorf("there is no flag --%s; see %s -h", err.GetSpecifiedName(), c.CommandPath())
}

// mostSharing is the largest number of flags that are listed because they share a word with an unknown one.
const mostSharing = 5

// Called returns the name by which the program was started, such as "bin/millrace". Command lines that the program
// prints for users to copy begin with it.
func Called() string {
	if filepath.Base(os.Args[0]) != "millrace" { // a test binary
		return "millrace"
	}
	return os.Args[0]
}

// Quoted returns a command line with the quotes that a shell needs.
func Quoted(args []string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%"
	quoted := slices.Clone(args)
	for i, a := range args {
		if a == "" || strings.Trim(a, plain) != "" {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
