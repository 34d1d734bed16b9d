package rules

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/millrace-ml/millrace/model/aten"
)

// schemaText is written by testdata/schemas.py.
//
//go:embed schemas.txt
var schemaText string

// later lists operators that are newer than the PyTorch version of schemaText. Package nn computes them itself.
const later = `
scaled_dot_product_attention query key value attn_mask=None dropout_p=0.0 is_causal=False scale=None enable_gqa=False
`

// parameter is an argument that an operator takes.
type parameter struct {
	name     string
	optional bool
	value    aten.Arg // default value
}

// schemas holds the parameters of PyTorch's operators.
var schemas = sync.OnceValue(func() map[string][]parameter {
	all := map[string][]parameter{}
	for line := range strings.Lines(schemaText + later) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		for _, w := range words[1:] {
			name, value, optional := strings.Cut(w, "=")
			all[words[0]] = append(all[words[0]], parameter{name, optional, literal(value)})
		}
	}
	return all
})

// literal reads a default value in Python's notation.
func literal(text string) aten.Arg {
	if inner, is := strings.CutPrefix(text, "["); is {
		list := aten.Arg{Kind: aten.List}
		for one := range strings.SplitSeq(strings.TrimSuffix(inner, "]"), ",") {
			if one != "" {
				list.List = append(list.List, literal(one))
			}
		}
		return list
	}
	if word, is := strings.CutPrefix(text, "'"); is {
		return aten.Arg{Kind: aten.Word, Text: strings.TrimSuffix(word, "'")}
	}
	if text == "True" || text == "False" {
		return aten.Arg{Kind: aten.Bool, Bool: text == "True"}
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return aten.Arg{Kind: aten.Int, Int: n}
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return aten.Arg{Kind: aten.Float, Float: f}
	}
	return aten.Arg{} // None
}

// positional returns a node with all its arguments in the positions that the operator's schema gives them.
func positional(n *aten.Node) (*aten.Node, error) {
	first := slices.IndexFunc(n.In, func(a aten.Arg) bool { return a.Name != "" })
	if first < 0 {
		return n, nil
	}
	takes := schemas()[strings.TrimPrefix(n.Op, "aten::")]
	if takes == nil {
		return nil, fmt.Errorf("it is given %s by name, and is none of the operators whose names are known: those of "+
			"PyTorch 1.13; write the module without it", n.In[first].Name)
	}
	if first > len(takes) {
		return nil, fmt.Errorf("it is given %d arguments by position, and takes %d", first, len(takes))
	}
	placed, filled := make([]aten.Arg, len(takes)), make([]bool, len(takes))
	copy(placed, n.In[:first])
	last := first
	for _, a := range n.In[first:] {
		at := slices.IndexFunc(takes, func(p parameter) bool { return p.name == a.Name })
		if at < first {
			return nil, fmt.Errorf("it has no argument %.80s in PyTorch 1.13, or has it by position too; leave it out", a.Name)
		}
		a.Name = ""
		placed[at], filled[at] = a, true
		last = max(last, at+1)
	}
	for at := first; at < len(takes); at++ {
		switch {
		case filled[at]:
		case takes[at].optional:
			placed[at] = takes[at].value
		default:
			return nil, fmt.Errorf("its argument %s is missing", takes[at].name)
		}
	}
	whole := *n
	whole.In = placed[:last]
	return &whole, nil
}
