package data

import (
	"fmt"

	"github.com/millrace-ml/millrace/internal/document"
)

// maxTextBytes is the longest text that is read: it is held in memory.
const maxTextBytes = 1 << 31

// text is windows of context+1 bytes, each beginning where the one before it ended but one.
type text struct {
	order   order
	bytes   []byte
	context int
}

func (t *text) Len() int { return (len(t.bytes) - 1) / t.context }

// Batch implements Split: inputs are bytes, targets the bytes one further on.
func (t *text) Batch(step, batchSize, firstRow, rows int) (Batch, error) {
	samples, err := t.order.positions(step, batchSize, firstRow, rows)
	if err != nil {
		return Batch{}, err
	}
	in, target := make([]int64, rows*t.context), make([]int64, rows*t.context)
	for r, s := range samples {
		window := t.bytes[s*t.context : s*t.context+t.context+1]
		for i := range t.context {
			in[r*t.context+i], target[r*t.context+i] = int64(window[i]), int64(window[i+1])
		}
	}
	shape := []int{rows, t.context}
	return Batch{Input: Array{Shape: shape, Ints: in}, Target: Array{Shape: shape, Ints: target}}, nil
}

// openText keeps the last tenth for testing: it comes after everything trained on.
func openText(path string, o Options) (*Set, error) {
	all, err := document.Read(path, maxTextBytes)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	if o.Context == 0 {
		o.Context = 128
	}
	if o.Context < 1 {
		return nil, fmt.Errorf("data: a context of %d positions; it must be 1 at least", o.Context)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("data: %s is empty; give a text that was written to its end", path)
	}
	cut := len(all) - len(all)/10
	if cut <= o.Context || len(all)-cut <= o.Context {
		return nil, fmt.Errorf("data: %s has %d bytes; for a context of %d it needs %d at least", path, len(all), o.Context,
			10*(o.Context+1))
	}
	train, test := &text{bytes: all[:cut], context: o.Context}, &text{bytes: all[cut:], context: o.Context}
	train.order, test.order = newOrder(train.Len(), o.Seed, false), newOrder(test.Len(), o.Seed, true)
	return &Set{Name: path, Train: train, Test: test, InputShape: []int{o.Context}, Classes: 256, Tokens: true}, nil
}
