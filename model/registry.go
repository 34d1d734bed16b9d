package model

import (
	"fmt"

	"github.com/millrace-ml/millrace/internal/registry"
)

// Kind is a kind of layer: its settings and what they make of its inputs.
type Kind struct {
	Name     string
	Doc      string
	Settings []Setting
	// Example is settings of a layer of the kind, which reads Reads.
	Example map[string]any
	Reads   []Tensor
	// Infer fills in the layer's Params, Outputs, FLOPs and SavedBytes. It does so from Attr, which holds every setting
	// with its default, and from the tensors of the layer's From list.
	Infer func(l *Layer, in []Tensor) error
	// Range says which of the tensors that a layer reads it takes as indices, and what these may be; nil: none.
	Range func(l *Layer, in []Tensor) (at int, r Range)
	// Features says how a layer of the kind is divided between stages; nil: it is not (Model.Divide).
	Features func(l *Layer) Features
}

// YAML is the example as a file has it.
func (k Kind) YAML() string {
	text := "{name: a, kind: " + k.Name
	for _, s := range k.Settings {
		if v, ok := k.Example[s.Name]; ok {
			text += fmt.Sprintf(", %s: %v", s.Name, v)
		}
	}
	if len(k.Reads) > 1 {
		text += ", from: [x"
		for i := range k.Reads[1:] {
			text += ", " + string(rune('y'+i))
		}
		text += "]"
	}
	return text + "}"
}

var kinds = registry.New[Kind]("kind")

// RegisterKind adds a kind of layer, so that Go users can bring their own (its
// computation goes to nn.Register). A name taken twice is a bug.
func RegisterKind(k Kind) { kinds.Add(k.Name, k) }

// Kinds lists the registered kinds by name.
func Kinds() []Kind { return kinds.All() }

// Int, Number, Flag, Word and Ints read a checked setting of a layer.
func (l *Layer) Int(name string) int        { return l.Attr[name].(int) }
func (l *Layer) Number(name string) float64 { return l.Attr[name].(float64) }
func (l *Layer) Flag(name string) bool      { return l.Attr[name].(bool) }
func (l *Layer) Word(name string) string    { return l.Attr[name].(string) }
func (l *Layer) Ints(name string) []int     { return l.Attr[name].([]int) }
