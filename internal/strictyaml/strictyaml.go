// Package strictyaml reads the YAML that people write for millrace: jobs, models, clusters.
//
// Input: a text and a pointer to a value. Output: the value filled in, or an error, which usually quotes the text with
// line and column. Besides invalid YAML it refuses unknown and repeated keys, fractions for whole numbers, a second
// document, and tags (the YAML library hangs on some). It refuses tabs in double-quoted text, because the library skips
// text after such tabs. It also refuses aliases that make a small text too large, texts beyond MaxBytes, and texts that
// take the library too long. It never panics and never hangs.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/registry"
)

// MaxBytes is the length of the longest text that is read.
const MaxBytes = 1 << 20

// These constants bound the tree of a text, with its aliases expanded.
const (
	maxDepth = 64
	maxNodes = 1 << 18
)

// Decode reads text into v, which is a pointer. For an empty text it returns io.EOF and leaves v unchanged.
func Decode(text []byte, v any) (err error) {
	if len(text) > MaxBytes {
		return fmt.Errorf("the text has %d bytes; at most %d are read", len(text), MaxBytes)
	}
	text = document.Unmarked(text)
	if err := bounded(text); err != nil {
		return err
	}
	// Some malformed texts make the library dereference nil. Report that as an error in the text.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the text is not YAML that can be read: %v", p)
		}
	}()
	if err := quotedTab(text); err != nil {
		return err
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return tabbed(err)
	}
	s := sizer{anchors: map[string]int{}}
	said := 0
	for _, d := range file.Docs {
		if d.Body == nil || d.Body.Type() == ast.CommentType {
			continue
		}
		if said++; said > 1 {
			return at(d.Body.GetToken(), "a second document begins here; the text is one")
		}
		if _, err := s.size(d.Body, 0); err != nil {
			return err
		}
	}
	if said == 0 {
		return io.EOF
	}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(v); err != nil {
		return readable(err, v)
	}
	w := wholes{anchors: map[string]ast.Node{}}
	for _, d := range file.Docs {
		if err := w.check(d.Body, reflect.TypeOf(v), "it"); err != nil {
			return err
		}
	}
	return nil
}

// Suggester is implemented by values that suggest a known key for an unknown one. For other values the nearest of
// their keys is suggested. "" means no suggestion.
type Suggester interface{ Suggest(unknown string) string }

// sizer counts the nodes of an expanded tree.
type sizer struct {
	anchors map[string]int // number of nodes of each complete anchor
}

func (s *sizer) size(n ast.Node, depth int) (int, error) {
	if n == nil {
		return 0, nil
	}
	if depth > maxDepth {
		return 0, at(n.GetToken(), fmt.Sprintf("it is nested deeper than %d levels", maxDepth))
	}
	var parts []ast.Node
	switch n := n.(type) {
	case *ast.TagNode:
		return 0, at(n.GetToken(), fmt.Sprintf("tags like %q are not read; leave it out", n.GetToken().Value))
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		size, known := s.anchors[name]
		if !known {
			return 0, at(n.GetToken(), fmt.Sprintf("alias *%s stands for nothing that is complete before it", name))
		}
		return size, nil
	case *ast.AnchorNode:
		size, err := s.size(n.Value, depth+1)
		if err == nil {
			s.anchors[n.Name.GetToken().Value] = size
		}
		return size, err
	case *ast.MappingNode:
		for _, v := range n.Values {
			parts = append(parts, v)
		}
	case *ast.MappingValueNode:
		parts = []ast.Node{n.Key, n.Value}
	case *ast.MappingKeyNode:
		parts = []ast.Node{n.Value}
	case *ast.SequenceNode:
		parts = n.Values
	}
	size := 1
	for _, p := range parts {
		more, err := s.size(p, depth+1)
		if err != nil {
			return 0, err
		}
		if size += more; size > maxNodes {
			return 0, at(n.GetToken(), fmt.Sprintf("with its aliases it stands for more than %d values", maxNodes))
		}
	}
	return size, nil
}

// quotedTab refuses a tab in double-quoted text. After such a text the library skips as many characters as the text has
// tabs. So it may lose a bracket, the end of the line, or a short line.
func quotedTab(text []byte) error {
	if !bytes.ContainsRune(text, '\t') || !bytes.ContainsRune(text, '"') {
		return nil
	}
	for i, t := range lexer.Tokenize(string(text)) {
		_, quoted, _ := strings.Cut(t.Origin, `"`) // white space before the quotes belongs to the token too
		if t.Type != token.DoubleQuoteType || !strings.Contains(quoted, "\t") {
			continue
		}
		// After a tab the library counts columns wrongly, and its tokens after this token are wrong. If spaces replace
		// the tabs, columns and tokens are right.
		if spaced := lexer.Tokenize(strings.ReplaceAll(string(text), "\t", " ")); i < len(spaced) &&
			spaced[i].Type == t.Type && spaced[i].Position.Line == t.Position.Line {
			t = spaced[i]
		}
		return at(t, `a tab in double-quoted text; write \t`)
	}
	return nil
}

// tabbed rewrites an error about a tab that is used as an indent. The new error says what is wrong, and in which line.
// Other errors are returned unchanged.
func tabbed(err error) error {
	var syntax *yaml.SyntaxError
	if !errors.As(err, &syntax) || !strings.Contains(syntax.Message, "'\t'") &&
		!strings.Contains(syntax.Message, "tab character") {
		return err
	}
	_, quoted, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("line %d: a tab; YAML indents with spaces\n%s", syntax.Token.Position.Line, quoted)
}

// at returns an error that quotes the text around a token.
func at(t *token.Token, message string) error { return &yaml.SyntaxError{Message: message, Token: t} }

// readable converts the library's errors to errors without Go terms.
func readable(err error, into any) error {
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) {
		key := unknown.Token.Value
		near := ""
		if s, is := into.(Suggester); is {
			near = s.Suggest(key)
		} else {
			keys := map[string][]string{}
			keysOf(reflect.TypeOf(into), "", keys, map[reflect.Type]bool{})
			if owners, elsewhere := keys[key]; elsewhere {
				return at(unknown.Token, fmt.Sprintf("field %q belongs in %s", key, strings.Join(owners, " or ")))
			}
			near = registry.Nearest(key, slices.Sorted(maps.Keys(keys)))
		}
		if near != "" {
			return at(unknown.Token, fmt.Sprintf("unknown field %q; did you mean %s?", key, near))
		}
		return at(unknown.Token, fmt.Sprintf("unknown field %q%s", key, among(unknown.Token, into)))
	}
	var kind *yaml.TypeError
	if errors.As(err, &kind) {
		return at(kind.Token, fmt.Sprintf("it must be %s", inWords(kind.DstType)))
	}
	var over *yaml.OverflowError
	if errors.As(err, &over) {
		return at(over.Token, fmt.Sprintf("%s is out of range; it must be %s", over.SrcNum, inWords(over.DstType)))
	}
	return err
}

// among lists the fields of a document whose top level has the unknown field of a token. Below the top level, and for
// documents of more fields than a line holds, it returns "".
func among(t *token.Token, into any) string {
	const most = 12
	keys := map[string][]string{}
	keysOf(reflect.TypeOf(into), "", keys, map[reflect.Type]bool{})
	maps.DeleteFunc(keys, func(_ string, owners []string) bool { return !slices.Contains(owners, "the top level") })
	if t.Position.Column != 1 || len(keys) == 0 || len(keys) > most {
		return ""
	}
	return "; this document has " + strings.Join(slices.Sorted(maps.Keys(keys)), ", ")
}

// keysOf collects the keys of a type and of all types below it. For each key it lists where the key belongs: the key of
// the struct that has it, or "the top level".
func keysOf(t reflect.Type, owner string, keys map[string][]string, seen map[reflect.Type]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		keysOf(t.Elem(), owner, keys, seen)
		return
	case reflect.Struct:
	default:
		return
	}
	if seen[t] {
		return
	}
	seen[t] = true
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		below := owner
		if name != "" && name != "-" {
			keys[name], below = append(keys[name], cmp.Or(owner, "the top level")), name
		}
		if f.IsExported() {
			keysOf(f.Type, below, keys, seen)
		}
	}
}

// inWords describes how values of a Go type are written in YAML.
func inWords(t reflect.Type) string {
	if t == nil {
		return "another kind of value"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number from 0 on"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a word or text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a mapping, key: value"
	case reflect.Pointer:
		return inWords(t.Elem())
	}
	return "another kind of value"
}

// InFile adds the file's path to the first line of an error, before the text that the error quotes.
func InFile(err error, path string) error {
	if err == nil {
		return nil
	}
	first, rest, _ := strings.Cut(err.Error(), "\n")
	if rest != "" {
		rest = "\n" + strings.TrimRight(rest, "\n ")
	}
	return &inFile{err, first + " (in " + path + ")" + rest}
}

type inFile struct {
	err  error
	text string
}

func (e *inFile) Error() string { return e.text }
func (e *inFile) Unwrap() error { return e.err }
