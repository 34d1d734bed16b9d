package table

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Agreement counts how much of a Table agrees with the paper.
type Agreement struct {
	Values     Count `json:"values"` // numbers within Near of the paper's
	Signs      Count `json:"signs"`  // ratios on the paper's side of 1, if the paper's ratio differs from 1 by over Apart
	Orders     Count `json:"orders"` // pairs of a group in the paper's order, if the paper's values differ by over Apart
	Bounds     Count `json:"bounds"` // numbers on the paper's side of a bound
	Crossovers Count `json:"crossovers"`
	Words      Count `json:"words"`
}

// Count is a number out of a total.
type Count struct {
	Same int `json:"same"`
	Of   int `json:"of"`
}

func (c *Count) add(same bool) {
	if c.Of++; same {
		c.Same++
	}
}

// Add adds up two counts.
func (c Count) Add(other Count) Count { return Count{c.Same + other.Same, c.Of + other.Of} }

// Near and Apart are relative differences. Values that differ by at most Near agree. Two values of the paper have an
// order if they differ by more than Apart.
const (
	Near  = .1
	Apart = .05
)

// Agreement counts what agrees with the paper, over all rows.
func (t *Table) Agreement() Agreement {
	a, _ := t.compare()
	return a
}

// Apart lists the signs, orders, bounds and crossovers that differ from the paper's, each with both numbers.
func (t *Table) Apart() []string {
	_, apart := t.compare()
	return apart
}

func (t *Table) compare() (a Agreement, apart []string) {
	count := func(c *Count, same bool, format string, numbers ...any) {
		if c.add(same); !same {
			apart = append(apart, fmt.Sprintf(format, numbers...))
		}
	}
	for i, r := range t.Rows {
		v := r.Values
		switch {
		case v == nil && r.Difference != "same" && r.Difference != "differs":
			continue
		case v == nil && r.Crosses:
			count(&a.Crossovers, r.Difference == "same", "%s: %s in the paper, here %s", r.What, r.Paper, r.Ours)
			continue
		case v == nil:
			a.Words.add(r.Difference == "same")
			continue
		case v.Side != "":
			count(&a.Bounds, v.keeps(v.Ours), "%s: %s %g in the paper, here %.4g", r.What, v.Side, v.Paper, v.Ours)
			continue
		}
		a.Values.add(math.Abs(v.Ours/v.Paper-1) <= Near)
		if v.Ratio && math.Abs(v.Paper-1) > Apart {
			count(&a.Signs, (v.Paper > 1) == (v.Ours > 1), "%s: %g in the paper, here %.4g", r.What, v.Paper, v.Ours)
		}
		for _, other := range t.Rows[:i] {
			o := other.Values
			if o == nil || o.Group == "" || o.Group != v.Group || math.Abs(o.Paper/v.Paper-1) <= Apart {
				continue
			}
			count(&a.Orders, (o.Paper > v.Paper) == (o.Ours > v.Ours) && o.Ours != v.Ours,
				"%s and %s: %g and %g in the paper, here %.4g and %.4g", other.What, r.What, o.Paper, v.Paper, o.Ours, v.Ours)
		}
	}
	return a, apart
}

// String returns a text such as "values 3 of 4 within 10 %, signs 2 of 2"; "" if nothing can be compared.
func (a Agreement) String() string {
	var all []string
	for _, x := range []struct {
		name, what string
		Count
	}{{"values", fmt.Sprintf(" within %.0f %%", 100*Near), a.Values}, {"signs", "", a.Signs}, {"orders", "", a.Orders},
		{"bounds", "", a.Bounds}, {"crossovers", "", a.Crossovers}, {"words", "", a.Words}} {
		if x.Of > 0 {
			all = append(all, fmt.Sprintf("%s %d of %d%s", x.name, x.Same, x.Of, x.what))
		}
	}
	return strings.Join(all, ", ")
}

// Order adds up signs, orders of systems, bounds and crossovers. These should agree with the paper even if values do
// not.
func (a Agreement) Order() Count { return a.Signs.Add(a.Orders).Add(a.Bounds).Add(a.Crossovers) }

// counts says whether a row is compared by signs, orders, bounds or crossovers.
func (r *Row) counts() bool {
	return r.Crosses || r.Values != nil && (r.Values.Ratio || r.Values.Group != "" || r.Values.Side != "")
}

// Under returns the Table with each row's value under another assumption. ok is false if a row that is compared by
// signs, orders, bounds or crossovers has no such value.
func (t *Table) Under(assumption string) (under *Table, ok bool) {
	other := *t
	other.Rows = slices.Clone(t.Rows)
	for i := range other.Rows {
		r := &other.Rows[i]
		k := slices.IndexFunc(r.Ablations, func(a Ablation) bool { return a.Assumption == assumption })
		switch {
		case k < 0 && r.counts():
			return nil, false
		case k < 0, r.Values == nil && r.Difference == "-": // unchanged by the assumption, or not in the paper
		case r.Values == nil:
			if r.Ours = r.Ablations[k].Ours; strings.EqualFold(r.Ours, r.Paper) {
				r.Difference = "same"
			} else {
				r.Difference = "differs"
			}
		default:
			v := *r.Values
			v.Ours, r.Ours, r.Values = r.Ablations[k].Value, r.Ablations[k].Ours, &v
		}
	}
	return &other, true
}

// Assumptions lists the assumptions under which every compared row (see counts) has a value. They are in the order in
// which rows name them.
func (t *Table) Assumptions() (all []string) {
	for _, r := range t.Rows {
		for _, a := range r.Ablations {
			if !slices.Contains(all, a.Assumption) {
				if _, ok := t.Under(a.Assumption); ok {
					all = append(all, a.Assumption)
				}
			}
		}
	}
	return all
}

// Verdict says whether signs, orders, bounds and crossovers are the paper's, or under which assumption they are.
type Verdict struct {
	Order Count    `json:"order"`           // what agrees without changed assumptions
	If    string   `json:"if,omitempty"`    // the assumption under which most rows agree, if it is better than none
	Then  Count    `json:"then,omitempty"`  // Order under the assumption If
	Apart []string `json:"apart,omitempty"` // what differs under If, or without changed assumptions if there is no If
	Tried int      `json:"tried,omitempty"` // number of combinations of assumptions
}

// Verdict judges the Table as it is and under each of its Assumptions. It chooses the assumption under which most rows
// agree. Of several such assumptions it prefers those with the fewest changes, and then the one with the most values
// near the paper's.
func (t *Table) Verdict() Verdict {
	v := Verdict{Order: t.Agreement().Order(), Apart: t.Apart(), Tried: t.Tried}
	most, near := v.Order.Same, 0
	for _, a := range t.Assumptions() {
		under, _ := t.Under(a)
		found := under.Agreement()
		c := found.Order()
		simpler := 0
		if v.If != "" {
			simpler = cmp.Or(cmp.Compare(t.switches(v.If), t.switches(a)), cmp.Compare(found.Values.Same, near))
		}
		if c.Same > most || c.Same == most && simpler > 0 {
			most, near, v.If, v.Then, v.Apart = c.Same, found.Values.Same, a, c, under.Apart()
		}
	}
	return v
}

// String returns the Verdict as a sentence; "" if the paper gives no sign, order, bound or crossover.
func (v Verdict) String() string {
	no := "no assumption that was switched in every row restores "
	if v.Tried > 0 {
		no = fmt.Sprintf("none of %d assumptions and combinations of them restores ", v.Tried)
	}
	tried := ""
	if v.Tried > 1 {
		tried = fmt.Sprintf(" (of %d assumptions and combinations of them that were tried)", v.Tried)
	}
	switch {
	case v.Order.Of == 0:
		return ""
	case v.Order.Same == v.Order.Of:
		return fmt.Sprintf("order and sign agree with the paper: %d of %d", v.Order.Same, v.Order.Of)
	case v.If != "" && v.Then.Same == v.Then.Of:
		return fmt.Sprintf("order and sign agree in %d of %d; in all if %s%s", v.Order.Same, v.Order.Of, v.If, tried)
	case v.If != "":
		return fmt.Sprintf("order and sign agree in %d of %d; in %d if %s, and %sall", v.Order.Same, v.Order.Of,
			v.Then.Same, v.If, no)
	}
	return fmt.Sprintf("order and sign agree in %d of %d; %smore", v.Order.Same, v.Order.Of, no)
}
