package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/registry"
)

// Kind is a kind of layer: its settings and what they make of its inputs.
type Kind struct {
	Name     string
	Doc      string
	Settings []Setting
	// Infer fills in the layer's Params, Outputs, FLOPs and SavedBytes from Attr, which
	// holds every setting with its default, and the tensors of its From list.
	Infer func(l *Layer, in []Tensor) error
	// Range says which of the tensors that a layer reads it takes as indices, and what these may be; nil: none.
	Range func(l *Layer, in []Tensor) (at int, r Range)
}

// Setting is one setting of a kind or a family. Default's type is the setting's
// type: int, float64, bool, string or []int; a nil Default makes an int required.
type Setting struct {
	Name    string
	Default any
	Doc     string
}

var kinds = registry.New[Kind]("kind")

// RegisterKind adds a kind of layer, so that Go users can bring their own (its
// computation goes to nn.Register). A name taken twice is a bug.
func RegisterKind(k Kind) { kinds.Add(k.Name, k) }

// Kinds lists the registered kinds by name.
func Kinds() []Kind { return kinds.All() }

// settle checks given settings against the known ones and fills in defaults.
func settle(what string, known []Setting, given map[string]any) (map[string]any, error) {
	out := map[string]any{}
	for _, s := range known {
		v, ok := given[s.Name]
		if !ok {
			if s.Default == nil {
				return nil, fmt.Errorf("%s needs the setting %q (%s)", what, s.Name, s.Doc)
			}
			out[s.Name] = s.Default
			continue
		}
		typed, err := convert(s, v)
		if err != nil {
			return nil, fmt.Errorf("%s: setting %q: %w", what, s.Name, err)
		}
		out[s.Name] = typed
	}
	for _, name := range sortedKeys(given) {
		if _, ok := out[name]; !ok {
			var names []string
			for _, s := range known {
				names = append(names, s.Name)
			}
			return nil, fmt.Errorf("%s has no setting %q; it has %s", what, name, strings.Join(names, ", "))
		}
	}
	return out, nil
}

func sortedKeys(m map[string]any) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// convert makes a value from YAML, JSON or a flag the type of its setting.
func convert(s Setting, v any) (any, error) {
	switch s.Default.(type) {
	case int, nil:
		n, err := wholeNumber(v)
		if err != nil {
			return nil, err
		}
		return n, nil
	case float64:
		switch x := v.(type) {
		case float64:
			return x, nil
		case int, int64, uint64:
			n, err := wholeNumber(x)
			return float64(n), err
		case string:
			if f, err := strconv.ParseFloat(strings.TrimSpace(x), 64); err == nil {
				return f, nil
			}
		}
		return nil, fmt.Errorf("%v is not a number", v)
	case bool:
		switch x := v.(type) {
		case bool:
			return x, nil
		case string:
			if x == "true" || x == "false" {
				return x == "true", nil
			}
		}
		return nil, fmt.Errorf("%v is not true or false", v)
	case string:
		if x, ok := v.(string); ok {
			return x, nil
		}
		return nil, fmt.Errorf("%v is not a word", v)
	case []int:
		return wholeNumbers(v)
	}
	return nil, fmt.Errorf("a setting of type %T is not known", s.Default)
}

func wholeNumber(v any) (int, error) {
	n := int64(0)
	switch x := v.(type) {
	case int:
		n = int64(x)
	case int64:
		n = x
	case uint64:
		n = int64(x)
	case float64:
		n = int64(x)
		if float64(n) != x {
			return 0, fmt.Errorf("%v is not a whole number", v)
		}
	case string:
		parsed, err := strconv.ParseInt(strings.TrimSpace(x), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number", x)
		}
		n = parsed
	default:
		return 0, fmt.Errorf("%v is not a whole number", v)
	}
	if n < 0 || n > 1<<31 {
		return 0, fmt.Errorf("%d is out of range; give 0 to 2^31", n)
	}
	return int(n), nil
}

func wholeNumbers(v any) ([]int, error) {
	var items []any
	switch x := v.(type) {
	case []int:
		return x, nil
	case []any:
		items = x
	case string:
		for word := range strings.SplitSeq(x, ",") {
			items = append(items, word)
		}
	default:
		return nil, fmt.Errorf("%v is not a list of whole numbers", v)
	}
	out := make([]int, len(items))
	for i, item := range items {
		n, err := wholeNumber(item)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

// Int, Number, Flag, Word and Ints read a checked setting of a layer.
func (l *Layer) Int(name string) int        { return l.Attr[name].(int) }
func (l *Layer) Number(name string) float64 { return l.Attr[name].(float64) }
func (l *Layer) Flag(name string) bool      { return l.Attr[name].(bool) }
func (l *Layer) Word(name string) string    { return l.Attr[name].(string) }
func (l *Layer) Ints(name string) []int     { return l.Attr[name].([]int) }
