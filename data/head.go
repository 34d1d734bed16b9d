package data

import (
	"fmt"
	"slices"
)

// headed are the splits that can be cut short.
type headed interface{ head(n int) Split }

// Head is the first n samples of a split that Open made, shuffled anew for every epoch of n. They are first in file
// order: a small data set out of a large one. It refuses more than the split has, and splits that are not of Open.
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

// Only is the array of a name alone, of a split that Open made of a file of arrays: the others are not read. Splits
// of other data are as they are.
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

func (o order) of(n int) order { return newOrder(n, o.seed, o.keep) }

func (t *table) head(n int) Split {
	short := *t
	short.labels, short.order = t.labels[:n], t.order.of(n)
	return &short
}

func (t *text[T]) head(n int) Split {
	return &text[T]{order: t.order.of(n), pair: t.pair, all: t.all[:n*t.context+1], context: t.context}
}
