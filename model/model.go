// Package model describes networks: a DAG of layers in a fixed topological
// order, with shapes, parameters, FLOPs and bytes, and nothing about tensors.
//
// In: a built-in family with its settings (mlp, convnet, gpt, llama, lstm), or a YAML file.
// Out: a Model, whose analytic costs and cuts other rooms ask for.
// Refused: unknown kinds and keys, cycles, names used twice or never defined,
// shapes that do not fit; each with the layer and what would be right.
package model

// DType is the element type of a described tensor.
type DType string

// The types a description can name.
const (
	Float DType = "float" // whatever the engine computes in
	Int   DType = "int"   // 64-bit, carries no gradient
	Bool  DType = "bool"  // a byte, carries no gradient
)

// Tensor describes one tensor for one sample: the batch dimension is left out.
type Tensor struct {
	Name  string `json:"name" yaml:"name"`
	Shape []int  `json:"shape" yaml:"shape"`
	DType DType  `json:"dtype" yaml:"dtype"`
	// Ranges are what elements of an input may be. They follow from the layers, and are no part of a description.
	Ranges []Range `json:"-" yaml:"-"`
}

// Init says how a parameter starts. Drawn values depend on (seed, layer, parameter) alone.
type Init struct {
	Kind string  `json:"kind"`           // "normal", "uniform", "zeros", "ones"; "given" by the model's Weights
	Std  float64 `json:"std,omitempty"`  // of normal
	High float64 `json:"high,omitempty"` // uniform in [-High, High)
}

// Param is one learned tensor of a layer, or a buffer (batch-norm statistics)
// that is kept and saved but has no gradient.
type Param struct {
	Name string `json:"name"` // within the layer: "weight"
	// Full is its name in checkpoints where that is not the layer's and its own; see Layer.ParamName.
	Full  string `json:"full,omitempty"`
	Shape []int  `json:"shape"`
	DType DType  `json:"dtype,omitempty"` // empty: Float
	Init  Init   `json:"init"`
	// Buffer is no parameter: it has no gradient, and forwards may write it.
	Buffer bool `json:"buffer,omitempty"`
	// Frozen is never changed: it has neither gradient nor optimizer state.
	Frozen bool `json:"frozen,omitempty"`
	// Inner is what the module does not save: a constant, or a buffer that is not persistent.
	Inner bool `json:"inner,omitempty"`
	// Also is other names that a module saves it by.
	Also []string `json:"also,omitempty"`
	// Tied is the full name ("embed.weight") of the parameter this one is the same as;
	// the first layer in topological order that holds it is its owner and has Tied empty.
	Tied string `json:"tied,omitempty"`
	// NoDecay exempts the parameter from weight decay (biases, normalisation gains).
	NoDecay bool `json:"no_decay,omitempty"`
	// Rows is, of a piece of a layer, which rows of the parameter it has; nil: all.
	Rows *Rows `json:"-"`
}

// Learned says whether p has a gradient.
func (p *Param) Learned() bool { return !p.Buffer && !p.Frozen }

// Layer is one node of the DAG: the smallest thing that a plan can put on a stage.
type Layer struct {
	Name    string         `json:"name"`
	Kind    string         `json:"kind"`
	From    []string       `json:"from"` // layers or model inputs whose tensors it reads, in order
	Attr    map[string]any `json:"attr"` // settings of the kind, checked and with defaults filled in
	Params  []Param        `json:"params"`
	Outputs []Tensor       `json:"outputs"` // per sample
	// ForwardFLOPs of one sample; InputFLOPs and WeightFLOPs of its two backward halves.
	ForwardFLOPs int64 `json:"forward_flops"`
	InputFLOPs   int64 `json:"input_flops"`
	WeightFLOPs  int64 `json:"weight_flops"`
	// SavedBytes of one sample held from forward to backward, at 4 bytes a float: the
	// analytic estimate; a measured profile replaces it.
	SavedBytes int64 `json:"saved_bytes"`
	// Divides is how a layer is divided whose kind does not say (Kind.Features); nil: it is not.
	Divides *Features `json:"-"`
	// Piece is which part of a layer this is, in a model that Divide made; nil: it is whole.
	Piece *Piece `json:"-"`
}

// Model is a network and what it reads. The last layer yields the loss.
type Model struct {
	Name   string   `json:"name"`
	Inputs []Tensor `json:"inputs"` // what a batch gives by name, per sample; see Target
	Layers []Layer  `json:"layers"` // topological order, fixed
	// Weights give parameters and buffers their first values; nil draws them.
	Weights Weights `json:"-"`
	// Positions is, by layer, where it or what it is a piece of is in the model that Divide was given; nil: it is there.
	Positions []int `json:"-"`
}

// Values are the elements of a tensor, little-endian, row by row.
type Values struct {
	DType string // F32, F64, I64 or BOOL
	Shape []int64
	Data  []byte
}

// Weights are first values of parameters and buffers, in files.
type Weights interface {
	// Tensor reads the values of a parameter by its full name into memory of the caller's own. It opens what it reads, and
	// any goroutine may ask.
	Tensor(name string) (Values, error)
}
