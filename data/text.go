package data

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/data/tokens"
	"github.com/millrace-ml/millrace/internal/document"
)

// maxTextBytes is the longest text that is read, since it is held in memory.
const maxTextBytes = 1 << 31

// defaultContext is the number of positions in a sample of a text, unless the model asks for another.
const defaultContext = 128

// text is cut into windows of context+1 bytes or tokens. The last byte or token of a window is the first of the next.
type text[T byte | uint32] struct {
	order   order
	pair    pair
	all     []T
	context int
}

func (t *text[T]) Len() int { return (len(t.all) - 1) / t.context }

// Batch implements Split. Inputs are bytes or tokens; targets are the bytes or tokens that follow them.
func (t *text[T]) Batch(step, batchSize, firstRow, rows int) (Batch, error) {
	samples, err := t.order.positions(step, batchSize, firstRow, rows)
	if err != nil {
		return nil, err
	}
	in, target := make([]int64, rows*t.context), make([]int64, rows*t.context)
	for r, s := range samples {
		window := t.all[s*t.context : s*t.context+t.context+1]
		for i := range t.context {
			in[r*t.context+i], target[r*t.context+i] = int64(window[i]), int64(window[i+1])
		}
	}
	return t.pair.batch(Array{Ints: in}, Array{Ints: target}, rows), nil
}

// openText reads a text as bytes or tokens.
func openText(path string, o Options) (*Set, error) {
	all, err := document.Read(path, maxTextBytes)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	context := defaultContext
	for _, f := range o.Fields {
		if f.Name != o.Target || len(o.Fields) == 1 {
			context = f.Elements()
		}
	}
	row := []int{context}
	p, err := o.paired(path, pair{Field{"input", row, Int, nil}, Field{"target", row, Int, nil}})
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("data: %s is empty; give a text that was written to its end", path)
	}
	if o.Tokenizer == "" {
		if err := textWithin(p, all, "byte"); err != nil {
			return nil, fmt.Errorf("data: %s: %w", path, err)
		}
		return divided(&Set{Name: path, Fields: p.fields(), Classes: 256, Tokens: true}, p, all, context, "bytes", o.Seed)
	}
	ids, err := tokens.Encode(o.Tokenizer, all)
	if err != nil {
		return nil, fmt.Errorf("data: %s: %w", path, err)
	}
	classes, err := tokens.Vocabulary(o.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	if err := textWithin(p, ids, "token"); err != nil {
		return nil, fmt.Errorf("data: %s: %w; %s has %d: a built-in model takes --set vocabulary=%d", path, err, o.Tokenizer,
			classes, classes)
	}
	return divided(&Set{Name: path, Fields: p.fields(), Classes: classes, Tokens: true}, p, ids, context, "tokens", o.Seed)
}

// textWithin refuses a text with a number out of range. Any number can appear at any place of a row, so all ranges
// apply.
func textWithin[T byte | uint32](p pair, all []T, what string) error {
	for _, f := range p.fields() {
		for i := range f.Ranges {
			r := &f.Ranges[i]
			if at := slices.IndexFunc(all, func(v T) bool { return !r.allows(int64(v)) }); at >= 0 {
				return fmt.Errorf("%s %d is %d, and the model's %q takes %v", what, at, all[at], f.Name, r)
			}
		}
	}
	return nil
}

// shorter suggests a context that would fit a text, if there is one.
func shorter(context int) string {
	if context < 1 {
		return ""
	}
	return fmt.Sprintf(", or a context of at most %d (built-in models take --set context=%d)", context, context)
}

// divided keeps the last tenth of a text for testing. It sets the splits of a Set.
func divided[T byte | uint32](set *Set, p pair, all []T, context int, what string, seed uint64) (*Set, error) {
	cut := len(all) - len(all)/10
	if cut <= context || len(all)-cut <= context {
		return nil, fmt.Errorf("data: %s has %d %s; for a context of %d it needs %d at least%s", set.Name, len(all), what,
			context, 10*(context+1), shorter(len(all)/10-1))
	}
	train, test := &text[T]{pair: p, all: all[:cut], context: context}, &text[T]{pair: p, all: all[cut:], context: context}
	train.order, test.order = newOrder(train.Len(), seed, false), newOrder(test.Len(), seed, true)
	set.Train, set.Test = train, test
	return set, nil
}
