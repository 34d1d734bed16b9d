package strictyaml

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// wholes refuses fractions where the value to fill in is a whole number, because the library truncates them.
type wholes struct {
	anchors map[string]ast.Node
}

// check checks a node against the type that it is read into; `name` is the node's key.
func (w wholes) check(n ast.Node, t reflect.Type, name string) error {
	for t.Kind() == reflect.Pointer {
		if readsItself(t) {
			return nil
		}
		t = t.Elem()
	}
	if n == nil || readsItself(reflect.PointerTo(t)) {
		return nil
	}
	switch n := n.(type) {
	case *ast.AnchorNode:
		w.anchors[n.Name.GetToken().Value] = n.Value
		return w.check(n.Value, t, name)
	case *ast.AliasNode:
		return w.check(w.anchors[n.Value.GetToken().Value], t, name)
	case *ast.MappingValueNode:
		return w.field(n, t)
	case *ast.MappingNode:
		for _, v := range n.Values {
			if err := w.field(v, t); err != nil {
				return err
			}
		}
	case *ast.SequenceNode:
		for _, v := range n.Values {
			of := t
			if t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
				of = t.Elem()
			}
			if err := w.check(v, of, name); err != nil {
				return err
			}
		}
	case *ast.FloatNode:
		return fraction(n, n.Value, t, name)
	case *ast.StringNode: // quoted, or a number with more digits than the library recognises
		if x, err := strconv.ParseFloat(n.Value, 64); err == nil {
			return fraction(n, x, t, name)
		}
	}
	return nil
}

// field checks the value of a key.
func (w wholes) field(n *ast.MappingValueNode, t reflect.Type) error {
	key := n.Key.GetToken().Value
	switch {
	case n.Key.IsMergeKey():
		return w.check(n.Value, t, key)
	case t.Kind() == reflect.Map:
		return w.check(n.Value, t.Elem(), key)
	case t.Kind() == reflect.Struct:
		if of := fieldOf(t, key); of != nil {
			return w.check(n.Value, of, key)
		}
	}
	return w.check(n.Value, reflect.TypeFor[any](), key) // the value may have anchors
}

// fieldOf returns the type of a struct's field for a key; nil if there is none.
func fieldOf(t reflect.Type, key string) reflect.Type {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case strings.Contains(options, "inline"):
			in := f.Type
			if in.Kind() == reflect.Pointer {
				in = in.Elem()
			}
			if in.Kind() == reflect.Struct {
				if of := fieldOf(in, key); of != nil {
					return of
				}
			}
		case name == key, name == "" && strings.ToLower(f.Name) == key:
			return f.Type
		}
	}
	return nil
}

// fraction returns an error for a number that is not whole if the type takes whole numbers.
func fraction(n ast.Node, x float64, t reflect.Type, name string) error {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if x != math.Trunc(x) {
			return at(n.GetToken(), fmt.Sprintf("%s is %s; it must be %s", name, n.GetToken().Value, inWords(t)))
		}
	}
	return nil
}

// readsItself reports whether a pointer type has a decoder of its own, so that its text is not checked here. The
// library has one for *time.Duration.
func readsItself(t reflect.Type) bool {
	return t == reflect.TypeFor[*time.Duration]() || t.Implements(reflect.TypeFor[yaml.BytesUnmarshaler]()) ||
		t.Implements(reflect.TypeFor[yaml.InterfaceUnmarshaler]()) ||
		t.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
