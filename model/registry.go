package model

import (
	"fmt"

	"github.com/millrace-ml/millrace/internal/registry"
)

// Kind is a kind of layer: its settings, and how its outputs follow from its inputs.
type Kind struct {
	Name     string
	Doc      string
	Settings []Setting
	// Example has the settings of an example layer. Reads has the tensors that this layer reads.
	Example map[string]any
	Reads   []Tensor
	// Infer fills in the layer's Params, Outputs, FLOPs and SavedBytes. It uses Attr, which holds every setting with
	// its default, and the tensors of the layer's From list.
	Infer func(l *Layer, in []Tensor) error
	// Range says which of the layer's inputs it takes as indices, and which numbers these may be; nil: no input.
	Range func(l *Layer, in []Tensor) (at int, r Range)
	// Features says how a layer of the kind is divided between stages (Model.Divide); nil: it cannot be divided.
	Features func(l *Layer) Features
}

// YAML returns the example in the form of a model file.
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

// RegisterKind adds a kind of layer, so that Go programs can add their own. nn.Register adds its computation.
// RegisterKind panics if the name is already registered.
func RegisterKind(k Kind) { kinds.Add(k.Name, k) }

// Kinds lists the registered kinds by name.
func Kinds() []Kind { return kinds.All() }

// Int, Number, Flag, Word and Ints return a checked setting of a layer.
func (l *Layer) Int(name string) int        { return l.Attr[name].(int) }
func (l *Layer) Number(name string) float64 { return l.Attr[name].(float64) }
func (l *Layer) Flag(name string) bool      { return l.Attr[name].(bool) }
func (l *Layer) Word(name string) string    { return l.Attr[name].(string) }
func (l *Layer) Ints(name string) []int     { return l.Attr[name].([]int) }
