package plan

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
)

// Setting is one knob of a planner.
type Setting struct {
	Name    string
	Default string // of both formulas; byFormula: each has its own, which Doc names
	Values  string // what it may be, for a person; the words of a choice with commas between
	Doc     string // one sentence, with the source
}

// byFormula is the default of settings for which the paper and the published code differ.
const byFormula = "formula"

// SettingError is a formula or a setting that a planner refuses, whatever it is to plan.
type SettingError struct{ text string }

func (e *SettingError) Error() string { return e.text }

func wrongSetting(format string, args ...any) error {
	return &SettingError{fmt.Sprintf("plan: "+format, args...)}
}

// CheckSettings refuses names in set that the planner does not have.
func (p Planner) CheckSettings(set map[string]string) error {
	for name := range set {
		if !slices.ContainsFunc(p.Settings, func(s Setting) bool { return s.Name == name }) {
			var names []string
			for _, s := range p.Settings {
				names = append(names, s.Name)
			}
			return wrongSetting("planner %s has no setting %q: it has %s", p.Name, name, strings.Join(names, ", "))
		}
	}
	return nil
}

// settingsReader reads a request's settings by a planner's table of them, which alone says what
// their defaults and their words are. The first that is wrong is its error.
type settingsReader struct {
	planner   string
	table     []Setting
	set       map[string]string
	published bool            // the published code's formula is asked for
	asked     map[string]bool // by the code that reads
	err       error
}

// artifact says whether the published code's formula is asked for.
func (s *settingsReader) artifact() bool { return s.published }

// failed is the first error so far.
func (s *settingsReader) failed() error { return s.err }

// fail makes this the error, unless another was before: of a setting that does not suit what is to be planned.
func (s *settingsReader) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// reads is a reader of what a request gives a planner with this table. It refuses names that are not in it
// and formulas but paper and, where there is published code, artifact.
func reads(planner string, table []Setting, published bool, r Request) *settingsReader {
	s := &settingsReader{planner: planner, table: table, set: r.Set, published: r.Formula == "artifact", asked: map[string]bool{}}
	s.err = (Planner{Name: planner, Settings: table}).CheckSettings(r.Set)
	switch {
	case s.err != nil || r.Formula == "" || r.Formula == "paper" || published && s.published:
	case published:
		s.err = wrongSetting("%s: formula is %q; it is paper or artifact", planner, r.Formula)
	default:
		s.err = wrongSetting("%s: formula is %q; its authors published no code, so there is only paper", planner, r.Formula)
	}
	return s
}

// of finds a setting and what it was given, or its default.
func (s *settingsReader) of(name string) (Setting, string) {
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

// wrong makes a setting the error, unless another was before.
func (s *settingsReader) wrong(name string) {
	if one, text := s.of(name); s.err == nil {
		s.err = wrongSetting("%s: %s is %q; it is %s", s.planner, name, text, one.Values)
	}
}

// done is the first error, or a setting that was given and that nothing read: it is the other formula's.
func (s *settingsReader) done() error {
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

// text is a setting as it was given, for callers that read it themselves and call wrong.
func (s *settingsReader) text(name string) string {
	_, text := s.of(name)
	return text
}

// byFormula is text, in which "formula" stands for what the formula asked for has.
func (s *settingsReader) byFormula(name, paper, artifact string) string {
	switch text := s.text(name); {
	case text != byFormula:
		return text
	case s.published:
		return artifact
	}
	return paper
}

// choice is one of the words that the table lists.
func (s *settingsReader) choice(name string) string { return s.chosen(name, s.text(name)) }

// choiceByFormula is choice, and byFormula where "formula" is given.
func (s *settingsReader) choiceByFormula(name, paper, artifact string) string {
	return s.chosen(name, s.byFormula(name, paper, artifact))
}

func (s *settingsReader) chosen(name, text string) string {
	if one, _ := s.of(name); !slices.Contains(strings.Split(one.Values, ", "), text) {
		s.wrong(name)
	}
	return text
}

// number is finite and least at least.
func (s *settingsReader) number(name string, least float64) float64 {
	v, err := strconv.ParseFloat(s.text(name), 64)
	if err != nil || !(v >= least) || math.IsInf(v, 0) {
		s.wrong(name)
	}
	return v
}

// positive is a finite number that divides.
func (s *settingsReader) positive(name string) float64 {
	return s.number(name, math.SmallestNonzeroFloat64)
}

// count is a whole number of least to most; 3e4 is one too.
func (s *settingsReader) count(name string, least, most int) int {
	v := s.number(name, float64(least))
	if !(v == math.Trunc(v)) || v > float64(most) {
		s.wrong(name)
		return least
	}
	return int(v)
}

// bytes is with a unit, 16GiB, or a number alone as the artifacts have it, 16e9; 1 at least.
func (s *settingsReader) bytes(name string) float64 {
	if n, err := cluster.ParseBytes(s.text(name)); err == nil && n >= 1 {
		return float64(n)
	}
	v := s.number(name, 1)
	if v > mostBytes {
		s.wrong(name)
	}
	return min(v, mostBytes)
}

// mostCount and mostBytes bound settings that count.
const (
	mostCount = 1 << 30
	mostBytes = 1 << 60
)
