package model

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/registry"
)

// Setting is one setting of a kind or a family. Its type is that of Default: int, float64, bool, string or []int. If
// Default is nil, the setting is an int and required.
type Setting struct {
	Name    string
	Default any
	Doc     string
	// Words lists the allowed strings; nil: any.
	Words []string
	// Least and Most limit a number, and each number in a list. A Most of 0 means no limit. If Between is set, the
	// numbers Least and Most themselves are not allowed.
	Least, Most float64
	Between     bool
}

// count returns a setting for a whole number of at least 1. If usual is nil, the setting is required.
func count(name string, usual any, doc string) Setting {
	return Setting{Name: name, Default: usual, Doc: doc, Least: 1}
}

// size returns a setting for a whole number from 1 to the largest number of elements of a sample.
func size(name string, usual any, doc string) Setting {
	return Setting{Name: name, Default: usual, Doc: doc, Least: 1, Most: maxSample}
}

// amount returns a setting for a whole number of at least 0.
func amount(name string, usual any, doc string) Setting {
	return Setting{Name: name, Default: usual, Doc: doc}
}

// repeats returns a setting for how often a family repeats a layer. Because of its limit, a typing error leads to an
// error message, and does not use up the machine's memory.
func repeats(name string, usual int, doc string) Setting {
	return Setting{Name: name, Default: usual, Doc: doc, Least: 1, Most: maxRepeats}
}

// counts returns a setting for a list of whole numbers of at least 1.
func counts(name string, usual []int, doc string) Setting {
	return Setting{Name: name, Default: usual, Doc: doc, Least: 1}
}

func flag(name string, usual bool, doc string) Setting {
	return Setting{Name: name, Default: usual, Doc: doc}
}

func word(name, usual, doc string) Setting { return Setting{Name: name, Default: usual, Doc: doc} }

// choice returns a setting for one of a few words.
func choice(name, usual, doc string, words ...string) Setting {
	return Setting{Name: name, Default: usual, Doc: doc, Words: words}
}

// probability returns a setting for a number from 0 to 1, except 1 itself.
func probability(name string, usual float64, doc string) Setting {
	return Setting{Name: name, Default: usual, Doc: doc, Most: math.Nextafter(1, 0)}
}

var (
	epsilon = Setting{Name: "epsilon", Default: 1e-5, Doc: "added to the mean square", Most: 1, Between: true}
	theta   = Setting{Name: "theta", Default: 10000.0, Doc: "base of the wave lengths of the positions", Least: 1,
		Most: 1e12, Between: true}
)

// Takes says which values the setting accepts: "a whole number, 1 or more".
func (s Setting) Takes() string {
	switch s.Default.(type) {
	case bool:
		return "true or false"
	case string:
		if s.Words == nil {
			return "a word"
		}
		return oneOf(s.Words)
	case []int:
		return "whole numbers" + strings.Replace(s.within(), ", ", ", each ", 1)
	case float64:
		return "a number" + s.within()
	}
	return "a whole number" + s.within()
}

// within says which numbers the setting accepts.
func (s Setting) within() string {
	number := func(v float64) string {
		if exponent := math.Log2(v); exponent >= 20 && exponent == math.Trunc(exponent) {
			return fmt.Sprintf("2^%d", int(exponent))
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	switch {
	case s.Between:
		return fmt.Sprintf(" above %s and below %s", number(s.Least), number(s.Most))
	case s.Most == math.Nextafter(1, 0):
		return fmt.Sprintf(" from %s up to but not 1", number(s.Least))
	case s.Most > 0:
		return fmt.Sprintf(" from %s to %s", number(s.Least), number(s.Most))
	}
	return fmt.Sprintf(", %s or more", number(s.Least))
}

// Usual describes the default: "default 64,32", or "needed" if there is none.
func (s Setting) Usual() string {
	switch v := s.Default.(type) {
	case nil:
		return "needed"
	case []int:
		return "default " + strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ","), "[]")
	case string:
		if v == "" {
			return "default none"
		}
		return "default " + v
	default:
		return fmt.Sprint("default ", v)
	}
}

// oneOf lists words as alternatives.
func oneOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// settle checks given settings against the known ones and fills in defaults.
func settle(what string, known []Setting, given map[string]any) (map[string]any, error) {
	out, names := map[string]any{}, make([]string, len(known))
	for i, s := range known {
		names[i] = s.Name
	}
	for _, name := range sortedKeys(given) {
		switch {
		case len(names) == 0:
			return nil, fmt.Errorf("%s has no settings, and %q is given", what, name)
		case !slices.Contains(names, name):
			return nil, fmt.Errorf("%s has no setting %q; %s", what, name, registry.Instead(name, names))
		}
	}
	for _, s := range known {
		v, ok := given[s.Name]
		if !ok {
			if s.Default == nil {
				return nil, fmt.Errorf("%s needs the setting %q (%s)", what, s.Name, s.Doc)
			}
			out[s.Name] = s.Default
			continue
		}
		typed, err := s.convert(v)
		if err != nil {
			return nil, fmt.Errorf("%s: setting %q: %w", what, s.Name, err)
		}
		out[s.Name] = typed
	}
	return out, nil
}

func sortedKeys(m map[string]any) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// convert turns a value from YAML, JSON or a flag into the setting's type, and checks its limits.
func (s Setting) convert(v any) (any, error) {
	var typed any
	var err error
	ok := true
	switch s.Default.(type) {
	case int, nil:
		var n int
		n, err = wholeNumber(v)
		typed, ok = n, s.holds(float64(n))
	case float64:
		var f float64
		f, err = real(v)
		typed, ok = f, s.holds(f)
	case bool:
		typed, err = truth(v)
	case string:
		w, is := v.(string)
		if !is {
			return nil, fmt.Errorf("%v is not a word", v)
		}
		typed, ok = w, s.Words == nil || slices.Contains(s.Words, w)
	case []int:
		var all []int
		all, err = wholeNumbers(v)
		typed = all
		ok = !slices.ContainsFunc(all, func(n int) bool { return !s.holds(float64(n)) })
	default:
		return nil, fmt.Errorf("a setting of type %T is not known", s.Default)
	}
	if err == nil && !ok {
		err = fmt.Errorf("it is %v; give %s", v, s.Takes())
	}
	return typed, err
}

// holds says whether a number is within the limits; NaN is not.
func (s Setting) holds(v float64) bool {
	if s.Between {
		return v > s.Least && v < s.Most
	}
	return v >= s.Least && (s.Most == 0 || v <= s.Most)
}

func real(v any) (float64, error) {
	switch x := v.(type) {
	case float64:
		return x, nil
	case int, int64, uint64:
		n, err := wholeNumber(x)
		return float64(n), err
	case string:
		if f, err := strconv.ParseFloat(strings.TrimSpace(x), 64); err == nil {
			return f, nil
		}
	}
	return 0, fmt.Errorf("%v is not a number", v)
}

func truth(v any) (bool, error) {
	switch x := v.(type) {
	case bool:
		return x, nil
	case string:
		if x == "true" || x == "false" {
			return x == "true", nil
		}
	}
	return false, fmt.Errorf("%v is not true or false", v)
}

func wholeNumber(v any) (int, error) {
	n := int64(0)
	switch x := v.(type) {
	case int:
		n = int64(x)
	case int64:
		n = x
	case uint64:
		n = int64(x)
	case float64:
		n = int64(x)
		if float64(n) != x {
			return 0, fmt.Errorf("%v is not a whole number", v)
		}
	case string:
		parsed, err := strconv.ParseInt(strings.TrimSpace(x), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number", x)
		}
		n = parsed
	default:
		return 0, fmt.Errorf("%v is not a whole number", v)
	}
	if n < 0 || n > 1<<31 {
		return 0, fmt.Errorf("%d is out of range; give 0 to 2^31", n)
	}
	return int(n), nil
}

func wholeNumbers(v any) ([]int, error) {
	var items []any
	switch x := v.(type) {
	case []int:
		return x, nil
	case []any:
		items = x
	case string:
		for word := range strings.SplitSeq(x, ",") {
			items = append(items, word)
		}
	default:
		return nil, fmt.Errorf("%v is not a list of whole numbers", v)
	}
	out := make([]int, len(items))
	for i, item := range items {
		n, err := wholeNumber(item)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}
