package data

import (
	"errors"
	"fmt"
	"slices"
)

// headed is implemented by splits that can be cut short.
type headed interface{ head(n int) Split }

// Head returns the first n samples of a split that Open made. It makes a small data set from a large one. The n samples
// are the first in the file. But if Open has divided a file of arrays into two parts, it has shuffled the rows, and the
// samples are the first in that shuffled order. The n samples of a training split are shuffled anew for every epoch.
// Head refuses an n below 1 or beyond the split's length, and splits that Open did not make.
func Head(s Split, n int) (Split, error) {
	h, ok := s.(headed)
	if !ok {
		return nil, fmt.Errorf("data: %T cannot be cut to its first %d samples", s, n)
	}
	if n < 1 || n > s.Len() {
		return nil, fmt.Errorf("data: the first %d samples of %d; give 1 to %d", n, s.Len(), s.Len())
	}
	return h.head(n), nil
}

// Only returns a split that reads only the named array, if `s` comes from Open of a file of arrays. It returns any
// other split unchanged.
func Only(s Split, name string) Split {
	all, ok := s.(*rows)
	if !ok {
		return s
	}
	short := *all
	short.columns = nil
	if i := slices.IndexFunc(all.columns, func(c column) bool { return c.as.Name == name }); i >= 0 {
		short.columns = all.columns[i : i+1]
	}
	return &short
}

// rowed is implemented by splits whose samples are rows of a file.
type rowed interface{ row(sample int) int }

// Rows returns the number of each sample's row in its file, counted from 0 without a heading. The rows of a test split
// come in the order in which evaluations read them. Rows refuses splits of texts, and splits that Open did not make.
func Rows(s Split) ([]int, error) {
	of, ok := s.(rowed)
	if !ok {
		return nil, errors.New("data: it has no rows that could be numbered; a text has windows")
	}
	all := make([]int, s.Len())
	for i := range all {
		all[i] = of.row(i)
	}
	return all, nil
}

func (r *rows) row(sample int) int { return r.among.sample(uint64(r.first + sample)) }

func (t *table) row(sample int) int {
	if t.rows == nil {
		return sample
	}
	return t.rows[sample]
}

func (o order) of(n int) order { return newOrder(n, o.seed, o.keep) }

func (t *table) head(n int) Split {
	short := *t
	short.labels, short.order = t.labels[:n], t.order.of(n)
	return &short
}

func (t *text[T]) head(n int) Split {
	return &text[T]{order: t.order.of(n), pair: t.pair, all: t.all[:n*t.context+1], context: t.context}
}
