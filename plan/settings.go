package plan

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/registry"
)

// Setting is one option of a planner.
type Setting struct {
	Name    string
	Default string // default of both formulas; DefaultByFormula if each formula has its own, which Doc then names
	Values  string // allowed values, as text for the user; the words of a choice are separated by commas
	Doc     string // one sentence, with the source
}

// DefaultByFormula is the default of settings that differ between the paper and the published code.
const DefaultByFormula = "formula"

// SettingError reports a formula or a setting that a planner refuses for every request.
type SettingError struct{ text string }

func (e *SettingError) Error() string { return e.text }

func wrongSetting(format string, args ...any) error {
	return &SettingError{fmt.Sprintf("plan: "+format, args...)}
}

// CheckSettings refuses names in `set` that the planner does not have.
func (p Planner) CheckSettings(set map[string]string) error {
	for name := range set {
		if !slices.ContainsFunc(p.Settings, func(s Setting) bool { return s.Name == name }) {
			var names []string
			for _, s := range p.Settings {
				names = append(names, s.Name)
			}
			return wrongSetting("planner %s has no setting %q; %s", p.Name, name, registry.Instead(name, names))
		}
	}
	return nil
}

// SettingsReader reads a request's settings. It takes their defaults and allowed words from a planner's table, and
// keeps the first error.
type SettingsReader struct {
	planner   string
	table     []Setting
	set       map[string]string
	published bool            // formula is "artifact"
	asked     map[string]bool // names of settings that were read
	err       error
}

// Artifact says whether the request has the published code's formula.
func (s *SettingsReader) Artifact() bool { return s.published }

// Err returns the first error so far.
func (s *SettingsReader) Err() error { return s.err }

// Fail records an error, unless there is one already. It is for settings that do not suit the request.
func (s *SettingsReader) Fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// ReadSettings returns a reader of a request's settings for a planner with this table. It refuses names that are not in
// the table. It accepts the formula paper and, if there is published code, artifact.
func ReadSettings(planner string, table []Setting, published bool, r Request) *SettingsReader {
	s := &SettingsReader{planner: planner, table: table, set: r.Set, published: r.Formula == "artifact",
		asked: map[string]bool{}}
	s.err = (Planner{Name: planner, Settings: table}).CheckSettings(r.Set)
	switch {
	case s.err != nil || r.Formula == "" || r.Formula == "paper" || published && s.published:
	case published:
		s.err = wrongSetting("%s: formula is %q; it is paper or artifact", planner, r.Formula)
	default:
		s.err = wrongSetting("%s: formula is %q; its authors published no code, so there is only paper", planner,
			r.Formula)
	}
	return s
}

// of returns a setting and its text: the given text or the default.
func (s *SettingsReader) of(name string) (Setting, string) {
	i := slices.IndexFunc(s.table, func(one Setting) bool { return one.Name == name })
	if i < 0 {
		panic("plan: planner " + s.planner + " reads setting " + name + ", which its table lacks")
	}
	s.asked[name] = true
	text, ok := s.set[name]
	if !ok {
		text = s.table[i].Default
	}
	return s.table[i], text
}

// Wrong records an error for a setting, unless there is one already.
func (s *SettingsReader) Wrong(name string) {
	if one, text := s.of(name); s.err == nil {
		s.err = wrongSetting("%s: %s is %q; it is %s", s.planner, name, text, one.Values)
	}
}

// Done returns the first error. A setting that was given but never read is an error too: it belongs to the other
// formula.
func (s *SettingsReader) Done() error {
	for _, one := range s.table {
		if _, given := s.set[one.Name]; given && !s.asked[one.Name] && s.err == nil {
			formula, other := "paper", "artifact"
			if s.published {
				formula, other = other, formula
			}
			s.err = wrongSetting("%s: %s is %q; it is a setting of formula %s, and formula %s does without it",
				s.planner, one.Name, s.set[one.Name], other, formula)
		}
	}
	return s.err
}

// Text returns a setting's text, given or default, for callers that parse it themselves and call Wrong.
func (s *SettingsReader) Text(name string) string {
	_, text := s.of(name)
	return text
}

// ByFormula returns a setting's text. It replaces the value "formula" by paper or artifact, as the request's formula
// says.
func (s *SettingsReader) ByFormula(name, paper, artifact string) string {
	switch text := s.Text(name); {
	case text != DefaultByFormula:
		return text
	case s.published:
		return artifact
	}
	return paper
}

// Choice returns a setting that must be one of the words in the table.
func (s *SettingsReader) Choice(name string) string { return s.chosen(name, s.Text(name)) }

// ChoiceByFormula is like Choice, with ByFormula's replacement for "formula".
func (s *SettingsReader) ChoiceByFormula(name, paper, artifact string) string {
	return s.chosen(name, s.ByFormula(name, paper, artifact))
}

func (s *SettingsReader) chosen(name, text string) string {
	if one, _ := s.of(name); !slices.Contains(strings.Split(one.Values, ", "), text) {
		s.Wrong(name)
	}
	return text
}

// Number returns a setting as a finite number, at least as large as `least`.
func (s *SettingsReader) Number(name string, least float64) float64 {
	v, err := strconv.ParseFloat(s.Text(name), 64)
	if err != nil || !(v >= least) || math.IsInf(v, 0) {
		s.Wrong(name)
	}
	return v
}

// Positive returns a setting as a finite number above 0, which is safe to divide by.
func (s *SettingsReader) Positive(name string) float64 {
	return s.Number(name, math.SmallestNonzeroFloat64)
}

// Count returns a setting as a whole number from `least` to `most`; 3e4 is accepted.
func (s *SettingsReader) Count(name string, least, most int) int {
	v := s.Number(name, float64(least))
	if !(v == math.Trunc(v)) || v > float64(most) {
		s.Wrong(name)
		return least
	}
	return int(v)
}

// Bytes returns a setting as a size of at least 1. It accepts a number with a unit (16GiB), or a plain number as in the
// artifacts (16e9).
func (s *SettingsReader) Bytes(name string) float64 {
	if n, err := cluster.ParseBytes(s.Text(name)); err == nil && n >= 1 {
		return float64(n)
	}
	v := s.Number(name, 1)
	if v > mostBytes {
		s.Wrong(name)
	}
	return min(v, mostBytes)
}

// MostCount and mostBytes limit the settings that are counts and sizes.
const (
	MostCount = 1 << 30
	mostBytes = 1 << 60
)
