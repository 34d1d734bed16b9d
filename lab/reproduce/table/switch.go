package table

import "strings"

// Switch changes one assumption of an experiment to its alternative.
type Switch[A comparable] struct {
	What string
	To   func(*A)
}

// Switched holds an experiment's assumptions after some changes.
type Switched[A comparable] struct {
	What     string // the changes, as in "this, that"
	Assumed  A
	switches int
}

// Combine applies one change, then two at once, and so on up to `most` changes. Smaller combinations come first.
// Combinations of one size are in the order of the switches. A change without effect is in no combination. Two changes
// are combined only if the result is the same in both orders.
func Combine[A comparable](as A, switches []Switch[A], most int) []Switched[A] {
	all := []Switched[A]{}
	var add func(from, left int, what []string, chosen []Switch[A])
	add = func(from, left int, what []string, chosen []Switch[A]) {
		if left == 0 {
			now := as
			for _, s := range chosen {
				s.To(&now)
			}
			all = append(all, Switched[A]{strings.Join(what, ", "), now, len(chosen)})
			return
		}
		for i := from; i < len(switches); i++ {
			if s := switches[i]; together(as, chosen, s) {
				add(i+1, left-1, append(what[:len(what):len(what)], s.What), append(chosen[:len(chosen):len(chosen)], s))
			}
		}
	}
	for n := 1; n <= min(most, len(switches)); n++ {
		add(0, n, nil, nil)
	}
	return all
}

// together says whether a change has an effect, and whether it can be combined with each chosen change: the result must
// be the same in both orders.
func together[A comparable](as A, chosen []Switch[A], s Switch[A]) bool {
	alone := as
	s.To(&alone)
	if alone == as {
		return false
	}
	for _, c := range chosen {
		first, last := as, alone
		c.To(&first)
		s.To(&first)
		c.To(&last)
		if first != last {
			return false
		}
	}
	return true
}

// Tries says which combinations of assumptions the rows of a Table cover. Of the combinations of several changes, the
// Table keeps only the smallest under which most rows agree.
func Tries[A comparable](t *Table, all []Switched[A]) {
	for _, s := range all {
		t.Try(s.What, s.switches)
	}
}

// Try adds one combination to those that the rows of the Table cover. `switches` is its number of changes.
func (t *Table) Try(what string, switches int) {
	if t.combined == nil {
		t.combined = map[string]int{}
	}
	if t.combined[what] == 0 {
		t.Tried++
	}
	t.combined[what] = switches
}

// settle drops the combinations of several changes except the one that the Verdict names.
func (t *Table) settle() {
	if len(t.combined) == 0 {
		return
	}
	best := t.Verdict().If
	for i := range t.Rows {
		var kept []Ablation
		for _, a := range t.Rows[i].Ablations {
			if a.Assumption == best || t.switches(a.Assumption) == 1 {
				kept = append(kept, a)
			}
		}
		t.Rows[i].Ablations = kept
	}
}

// switches returns the number of changes in one of the Table's assumptions.
func (t *Table) switches(assumption string) int { return max(1, t.combined[assumption]) }
