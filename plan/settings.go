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

// Setting is one knob of a planner.
type Setting struct {
	Name    string
	Default string // of both formulas; byFormula: each has its own, which Doc names
	Values  string // what it may be, for a person; the words of a choice with commas between
	Doc     string // one sentence, with the source
}

// DefaultByFormula is the default of settings for which the paper and the published code differ.
const DefaultByFormula = "formula"

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
			return wrongSetting("planner %s has no setting %q; %s", p.Name, name, registry.Instead(name, names))
		}
	}
	return nil
}

// SettingsReader reads a request's settings by a planner's table of them, which alone says what
// their defaults and their words are. The first that is wrong is its error.
type SettingsReader struct {
	planner   string
	table     []Setting
	set       map[string]string
	published bool            // the published code's formula is asked for
	asked     map[string]bool // by the code that reads
	err       error
}

// Artifact says whether the published code's formula is asked for.
func (s *SettingsReader) Artifact() bool { return s.published }

// Err is the first error so far.
func (s *SettingsReader) Err() error { return s.err }

// Fail makes this the error, unless another was before: of a setting that does not suit what is to be
// planned.
func (s *SettingsReader) Fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// ReadSettings returns a reader of a request's settings for a planner with this table. It refuses names that are not in
// the table, and formulas other than paper and, where code was published, artifact.
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

// of finds a setting and what it was given, or its default.
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

// Wrong makes a setting the error, unless another was before.
func (s *SettingsReader) Wrong(name string) {
	if one, text := s.of(name); s.err == nil {
		s.err = wrongSetting("%s: %s is %q; it is %s", s.planner, name, text, one.Values)
	}
}

// Done is the first error, or a setting that was given and that nothing read: it is the other formula's.
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

// Text is a setting as it was given, for callers that read it themselves and call wrong.
func (s *SettingsReader) Text(name string) string {
	_, text := s.of(name)
	return text
}

// ByFormula is a setting's text; the value "formula" stands for paper or artifact, by the formula asked for.
func (s *SettingsReader) ByFormula(name, paper, artifact string) string {
	switch text := s.Text(name); {
	case text != DefaultByFormula:
		return text
	case s.published:
		return artifact
	}
	return paper
}

// Choice is one of the words that the table lists.
func (s *SettingsReader) Choice(name string) string { return s.chosen(name, s.Text(name)) }

// ChoiceByFormula is choice, and byFormula where "formula" is given.
func (s *SettingsReader) ChoiceByFormula(name, paper, artifact string) string {
	return s.chosen(name, s.ByFormula(name, paper, artifact))
}

func (s *SettingsReader) chosen(name, text string) string {
	if one, _ := s.of(name); !slices.Contains(strings.Split(one.Values, ", "), text) {
		s.Wrong(name)
	}
	return text
}

// Number is finite and least at least.
func (s *SettingsReader) Number(name string, least float64) float64 {
	v, err := strconv.ParseFloat(s.Text(name), 64)
	if err != nil || !(v >= least) || math.IsInf(v, 0) {
		s.Wrong(name)
	}
	return v
}

// Positive is a finite number that divides.
func (s *SettingsReader) Positive(name string) float64 {
	return s.Number(name, math.SmallestNonzeroFloat64)
}

// Count is a whole number of least to most; 3e4 is one too.
func (s *SettingsReader) Count(name string, least, most int) int {
	v := s.Number(name, float64(least))
	if !(v == math.Trunc(v)) || v > float64(most) {
		s.Wrong(name)
		return least
	}
	return int(v)
}

// Bytes is with a unit, 16GiB, or a number alone as the artifacts have it, 16e9; 1 at least.
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

// mostCount and mostBytes bound settings that count.
const (
	MostCount = 1 << 30
	mostBytes = 1 << 60
)
