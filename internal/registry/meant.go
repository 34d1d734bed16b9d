package registry

import (
	"fmt"
	"slices"
	"strings"
)

// None returns the error for an unknown name. `sort` is the kind of thing that is named, such as "planner". The error
// suggests the name that was meant, or lists all names. `others` are further allowed values, such as "the path of a
// file".
func None(sort, given string, names []string, others ...string) error {
	return fmt.Errorf("there is no %s %q; %s", sort, given, Instead(given, names, others...))
}

// OneOf returns an error unless `given` is one of the words. It suggests the word that was meant, or lists all words.
func OneOf(given string, words []string) error {
	if slices.Contains(words, given) {
		return nil
	}
	if given == "" {
		return fmt.Errorf("missing; give %s", strings.Join(words, ", "))
	}
	return fmt.Errorf("%q; %s", given, Instead(given, words))
}

// shortList is the largest number of characters of a list of names that is shown beside a suggestion.
const shortList = 60

// Instead suggests the names that an unknown name was meant for, or lists all names if there is no suggestion. It adds
// the list to a suggestion if the list is short.
func Instead(given string, names []string, others ...string) string {
	all := "there are " + strings.Join(names, ", ")
	if len(names) == 1 {
		all = "there is " + names[0]
	}
	near := meant(given, names)
	switch question := "did you mean " + strings.Join(near, " or ") + "?"; {
	case len(near) == 0 && len(others) > 0:
		return all + ", or give " + strings.Join(others, " or ")
	case len(near) == 0:
		return all
	case len(all) <= shortList:
		return question + " " + all
	default:
		return question
	}
}

// Nearest returns the first name that Instead suggests: one that differs in few letters, or has the same beginning or
// ending. It returns "" if there is none.
func Nearest(given string, names []string) string {
	if near := meant(given, names); len(near) > 0 {
		return near[0]
	}
	return ""
}

// meant returns the names that an unknown name may have been meant for; none if there are more than mostMeant. It tries
// five kinds of names, in this order: names that begin with the unknown name and a hyphen, the nearest names, all names
// that begin with the unknown name, all that end with it, and those that share a word with it and begin like it.
func meant(given string, names []string) (near []string) {
	begun := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return len(given) < 2 || !strings.HasPrefix(strings.ToLower(name), strings.ToLower(given)+"-")
	})
	if n := len(begun); n > 0 && n <= mostMeant {
		return begun
	}
	least := 1 + min(2, len(given)/3)
	for _, name := range names {
		switch d := distance(strings.ToLower(given), strings.ToLower(name)); {
		case d < least:
			near, least = []string{name}, d
		case d == least && near != nil:
			near = append(near, name)
		}
	}
	if near == nil && len(given) > 1 {
		near = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, given) })
	}
	if len(near) == 0 && len(given) > 2 { // the end of a name, such as "a100" for dgx-a100
		near = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return !strings.HasSuffix(strings.ToLower(name), strings.ToLower(given))
		})
	}
	if len(near) == 0 {
		near = slices.DeleteFunc(Sharing(given, names), func(name string) bool {
			return len(name) < 3 || !strings.HasPrefix(strings.ToLower(given), strings.ToLower(name[:3]))
		})
	}
	if len(near) > mostMeant {
		return nil
	}
	return near
}

// Sharing returns the names that share a word with an unknown name, as save-every and checkpoint-every do.
func Sharing(given string, names []string) (sharing []string) {
	words := func(name string) []string {
		return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' })
	}
	asked := words(given)
	for _, name := range names {
		if slices.ContainsFunc(words(name), func(w string) bool { return len(w) > 2 && slices.Contains(asked, w) }) {
			sharing = append(sharing, name)
		}
	}
	return sharing
}

// mostMeant is the largest number of names that are suggested; more would not help.
const mostMeant = 3

// distance returns the least number of changes that turn a into b. A change inserts, removes or replaces a letter, or
// swaps it with the next letter.
func distance(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for k := range row {
		row[k] = k
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for k := range len(b) {
			wrong := 1
			if a[i] == b[k] {
				wrong = 0
			}
			next[k+1] = min(row[k]+wrong, row[k+1]+1, next[k]+1)
			if i > 0 && k > 0 && a[i] == b[k-1] && a[i-1] == b[k] {
				next[k+1] = min(next[k+1], before[k-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
