package data

import (
	"fmt"

	"github.com/millrace-ml/millrace/internal/document"
)

// maxTextBytes is the longest text that is read: it is held in memory.
const maxTextBytes = 1 << 31

// defaultContext is how many positions a sample of a text has where nobody wants another number.
const defaultContext = 128

// text is windows of context+1 bytes, each beginning where the one before it ended but one.
type text struct {
	order   order
	pair    pair
	bytes   []byte
	context int
}

func (t *text) Len() int { return (len(t.bytes) - 1) / t.context }

// Batch implements Split: inputs are bytes, targets the bytes one further on.
func (t *text) Batch(step, batchSize, firstRow, rows int) (Batch, error) {
	samples, err := t.order.positions(step, batchSize, firstRow, rows)
	if err != nil {
		return nil, err
	}
	in, target := make([]int64, rows*t.context), make([]int64, rows*t.context)
	for r, s := range samples {
		window := t.bytes[s*t.context : s*t.context+t.context+1]
		for i := range t.context {
			in[r*t.context+i], target[r*t.context+i] = int64(window[i]), int64(window[i+1])
		}
	}
	return t.pair.batch(Array{Ints: in}, Array{Ints: target}, rows), nil
}

// openText keeps the last tenth for testing: it comes after everything trained on.
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
	tokens := []int{context}
	p, err := o.paired(path, pair{Field{"input", tokens, Int}, Field{"target", tokens, Int}})
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("data: %s is empty; give a text that was written to its end", path)
	}
	cut := len(all) - len(all)/10
	if cut <= context || len(all)-cut <= context {
		return nil, fmt.Errorf("data: %s has %d bytes; for a context of %d it needs %d at least", path, len(all), context,
			10*(context+1))
	}
	train, test := &text{pair: p, bytes: all[:cut], context: context}, &text{pair: p, bytes: all[cut:], context: context}
	train.order, test.order = newOrder(train.Len(), o.Seed, false), newOrder(test.Len(), o.Seed, true)
	return &Set{Name: path, Train: train, Test: test, Fields: p.fields(), Classes: 256, Tokens: true}, nil
}
