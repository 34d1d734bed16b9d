package table

import (
	"fmt"
	"math"
	"strings"
)

// Row compares one value of a paper with our value.
type Row struct {
	What       string `json:"what"`
	Paper      string `json:"paper"`
	Ours       string `json:"ours"`
	Difference string `json:"difference"`
	Why        string `json:"why,omitempty"`
	// Values holds Paper and Ours as numbers; nil if one of them is not a number.
	Values *Values `json:"values,omitempty"`
	// Crosses says that Paper and Ours describe where systems overtake each other.
	Crosses   bool       `json:"crosses,omitempty"`
	Ablations []Ablation `json:"ablations,omitempty"`
}

// Values holds a paper's number and ours, and says what else can be compared.
type Values struct {
	Paper float64 `json:"paper"`
	Ours  float64 `json:"ours"`
	// Ratio says that the numbers are speeds relative to something else: above 1 is faster, below 1 slower.
	Ratio bool `json:"ratio,omitempty"`
	// Group names a group of rows whose values are compared by order; "" means none.
	Group string `json:"group,omitempty"`
	// Side is "at least" or "at most" if Paper is a bound.
	Side string `json:"side,omitempty"`
}

// keeps says whether a value is on the side of the bound.
func (v *Values) keeps(ours float64) bool {
	return (v.Side == "at least") == (ours >= v.Paper) || ours == v.Paper
}

// Ablation is our value of a row under another assumption.
type Ablation struct {
	Assumption string  `json:"assumption"`
	Ours       string  `json:"ours"`
	Value      float64 `json:"value,omitempty"` // only if the row has Values
}

// Number adds a row of two numbers with their relative difference. If `paper` is 0, the paper does not print the
// number.
func (t *Table) Number(what string, paper, ours float64, format, why string) *Row {
	r := Row{What: what, Paper: "not printed", Ours: fmt.Sprintf(format, ours), Difference: "-", Why: why}
	if paper != 0 {
		r.Paper, r.Difference = fmt.Sprintf(format, paper), fmt.Sprintf("%+.1f %%", 100*(ours/paper-1))
		r.Values = &Values{Paper: paper, Ours: ours}
		if math.Abs(ours/paper-1) < 5e-4 {
			r.Difference, r.Why = "none", ""
		}
	}
	t.Rows = append(t.Rows, r)
	return &t.Rows[len(t.Rows)-1]
}

// Word adds a row of two words.
func (t *Table) Word(what, paper, ours, why string) *Row {
	r := Row{What: what, Paper: paper, Ours: ours, Difference: "same"}
	if !strings.EqualFold(paper, ours) {
		r.Difference, r.Why = "differs", why
	}
	t.Rows = append(t.Rows, r)
	return &t.Rows[len(t.Rows)-1]
}

// Bound adds a row for a number of which the paper states only a least or a largest value.
func (t *Table) Bound(what, side string, paper, ours float64) *Row {
	r := Row{What: what, Paper: fmt.Sprintf("%s %g", side, paper), Ours: fmt.Sprintf("%.2f", ours),
		Difference: "differs", Values: &Values{Paper: paper, Ours: ours, Side: side}}
	if r.Values.keeps(ours) {
		r.Difference = "same"
	}
	t.Rows = append(t.Rows, r)
	return &t.Rows[len(t.Rows)-1]
}

// Says adds a row for a statement of the paper. `holds` says whether the statement is true here.
func (t *Table) Says(what string, holds bool) *Row {
	return t.Word(what, "yes", yesOrNo[holds], "")
}

var yesOrNo = map[bool]string{true: "yes", false: "no"}

// SaysIf adds an ablation that says whether the statement is true under another assumption.
func (r *Row) SaysIf(assumption string, holds bool) { r.AblateWord(assumption, yesOrNo[holds]) }

// Crossover marks a row whose words say where one system overtakes another, or which system is ahead.
func (r *Row) Crossover() *Row {
	r.Crosses = true
	return r
}

// Ratio marks a row whose numbers are speeds relative to something else.
func (r *Row) Ratio() *Row {
	if r.Values != nil {
		r.Values.Ratio = true
	}
	return r
}

// In adds a row to a group of rows whose order is compared.
func (r *Row) In(group string) *Row {
	if r.Values != nil {
		r.Values.Group = group
	}
	return r
}

// Ablate adds a row's value under another assumption.
func (r *Row) Ablate(assumption string, value float64, format string) {
	r.Ablations = append(r.Ablations, Ablation{assumption, fmt.Sprintf(format, value), value})
}

// AblateWord adds a row's word under another assumption.
func (r *Row) AblateWord(assumption, ours string) {
	r.Ablations = append(r.Ablations, Ablation{Assumption: assumption, Ours: ours})
}
