package table

import (
	"fmt"
	"math"
	"strings"
)

// Row is one value of a paper beside ours.
type Row struct {
	What       string `json:"what"`
	Paper      string `json:"paper"`
	Ours       string `json:"ours"`
	Difference string `json:"difference"`
	Why        string `json:"why,omitempty"`
	// Values are Paper and Ours as numbers; nil where one of them is none.
	Values    *Values    `json:"values,omitempty"`
	Ablations []Ablation `json:"ablations,omitempty"`
}

// Values are a paper's number and ours, and what of them can be compared beside their size.
type Values struct {
	Paper float64 `json:"paper"`
	Ours  float64 `json:"ours"`
	// Ratio says that they are times as fast as something else: above 1 is better than that, below 1 worse.
	Ratio bool `json:"ratio,omitempty"`
	// Group names rows that stand in an order by their values; "": none.
	Group string `json:"group,omitempty"`
}

// Ablation is our value of a row where one assumption is another.
type Ablation struct {
	Assumption string  `json:"assumption"`
	Ours       string  `json:"ours"`
	Value      float64 `json:"value"`
}

// Number adds a row of two numbers with their relative difference. A paper of 0 printed none.
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

// Bound adds a row of a number that the paper bounds.
func (t *Table) Bound(what, side string, paper, ours float64) {
	r := t.Word(what, fmt.Sprintf("%s %.1f", side, paper), fmt.Sprintf("%.2f", ours), "")
	if (side == "at least") == (ours >= paper) || ours == paper {
		r.Difference = "same"
		return
	}
	r.Difference = "differs"
}

// Ratio says that a row is times as fast as something else.
func (r *Row) Ratio() *Row {
	if r.Values != nil {
		r.Values.Ratio = true
	}
	return r
}

// In says which other rows a row is in an order with.
func (r *Row) In(group string) *Row {
	if r.Values != nil {
		r.Values.Group = group
	}
	return r
}

// Ablate adds what a row's value is under another assumption.
func (r *Row) Ablate(assumption string, value float64, format string) {
	r.Ablations = append(r.Ablations, Ablation{assumption, fmt.Sprintf(format, value), value})
}

// Agreement is how much of a Table comes out as the paper has it.
type Agreement struct {
	Values Count `json:"values"` // numbers within Near of the paper's
	Signs  Count `json:"signs"`  // ratios on the same side of 1, of those that the paper has over Apart off it
	Orders Count `json:"orders"` // pairs of a group in the same order, of those over Apart from each other in the paper
	Words  Count `json:"words"`
}

// Count is so many of all.
type Count struct {
	Same int `json:"same"`
	Of   int `json:"of"`
}

func (c *Count) add(same bool) {
	if c.Of++; same {
		c.Same++
	}
}

// Relative differences: of a value that counts as the paper's, and of two values whose order counts.
const (
	Near  = .1
	Apart = .05
)

// Agreement counts over the rows.
func (t *Table) Agreement() (a Agreement) {
	for i, r := range t.Rows {
		v := r.Values
		if v == nil {
			if r.Difference == "same" || r.Difference == "differs" {
				a.Words.add(r.Difference == "same")
			}
			continue
		}
		a.Values.add(math.Abs(v.Ours/v.Paper-1) <= Near)
		if v.Ratio && math.Abs(v.Paper-1) > Apart {
			a.Signs.add((v.Paper > 1) == (v.Ours > 1))
		}
		for _, other := range t.Rows[:i] {
			o := other.Values
			if o == nil || o.Group == "" || o.Group != v.Group || math.Abs(o.Paper/v.Paper-1) <= Apart {
				continue
			}
			a.Orders.add((o.Paper > v.Paper) == (o.Ours > v.Ours) && o.Ours != v.Ours)
		}
	}
	return a
}

// String is what agrees, "values 3 of 4 within 10 %, signs 2 of 2"; "" where nothing can be compared.
func (a Agreement) String() string {
	var all []string
	for _, x := range []struct {
		name, what string
		Count
	}{{"values", fmt.Sprintf(" within %.0f %%", 100*Near), a.Values}, {"signs", "", a.Signs}, {"orders", "", a.Orders},
		{"words", "", a.Words}} {
		if x.Of > 0 {
			all = append(all, fmt.Sprintf("%s %d of %d%s", x.name, x.Same, x.Of, x.what))
		}
	}
	return strings.Join(all, ", ")
}
