package strictyaml

import (
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/millrace-ml/millrace/internal/document"
)

// Key is a key of a text's outermost mapping, with its position.
type Key struct {
	Name string
	Line int
	at   *token.Token
}

// Keys returns the keys of the outermost mapping of a text, in order; nil if the text is not YAML.
func Keys(text []byte) (keys []Key) {
	file, err := parser.ParseBytes(document.Unmarked(text), 0)
	if err != nil {
		return nil
	}
	for _, d := range file.Docs {
		body := d.Body
		if anchor, is := body.(*ast.AnchorNode); is {
			body = anchor.Value
		}
		m, is := body.(*ast.MappingNode)
		if !is {
			continue
		}
		for _, v := range m.Values {
			t := v.Key.GetToken()
			keys = append(keys, Key{Name: t.Value, Line: t.Position.Line, at: t})
		}
	}
	return keys
}

// Refuse returns an error that quotes the text around the key.
func (k Key) Refuse(message string) error { return at(k.at, message) }
