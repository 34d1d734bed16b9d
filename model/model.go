// Package model describes networks: a DAG of layers in a fixed topological order, with shapes, parameters, FLOPs and
// bytes. It has no tensors.
//
// In: a built-in family with its settings (mlp, convnet, gpt, llama, lstm, and the papers' models), or a YAML file.
// Out: a Model, with its analytic costs and its cuts. Refused, with the layer and what would be right: unknown kinds
// and keys, cycles, names used twice or never defined, and shapes that do not fit.
package model

// DType is the element type of a described tensor.
type DType string

// The types that a description can have.
const (
	Float DType = "float" // the engine's float type
	Int   DType = "int"   // 64 bits, without a gradient
	Bool  DType = "bool"  // one byte, without a gradient
)

// Tensor describes one tensor for one sample: the batch dimension is left out.
type Tensor struct {
	Name  string `json:"name" yaml:"name"`
	Shape []int  `json:"shape" yaml:"shape"`
	DType DType  `json:"dtype" yaml:"dtype"`
	// Ranges limits the elements of an input. It follows from the layers that read the input, and is not a part of the
	// description.
	Ranges []Range `json:"-" yaml:"-"`
}

// Init says how a parameter gets its initial values. Random values depend only on (seed, layer, parameter).
type Init struct {
	Kind string  `json:"kind"`           // "normal", "uniform", "zeros", "ones"; "given": from the model's Weights
	Std  float64 `json:"std,omitempty"`  // for normal
	High float64 `json:"high,omitempty"` // for uniform, in (-High, High)
}

// Param is one tensor of a layer: a learned parameter, or a tensor without a gradient. A tensor without a gradient is a
// frozen parameter, a constant, or a buffer such as batch-norm statistics.
type Param struct {
	Name string `json:"name"` // name in the layer: "weight"
	// Full is the parameter's name in checkpoints, if it differs from the layer's name, a dot and Name; see
	// Layer.ParamName.
	Full  string `json:"full,omitempty"`
	Shape []int  `json:"shape"`
	DType DType  `json:"dtype,omitempty"` // empty means Float
	Init  Init   `json:"init"`
	// Buffer marks a tensor without a gradient, which forwards may write.
	Buffer bool `json:"buffer,omitempty"`
	// Frozen marks a tensor that never changes: it has neither gradient nor optimizer state.
	Frozen bool `json:"frozen,omitempty"`
	// Inner marks a tensor that the module does not save: a constant, or a buffer that is not persistent.
	Inner bool `json:"inner,omitempty"`
	// Also lists other names under which a module saves the parameter.
	Also []string `json:"also,omitempty"`
	// Tied is the full name ("embed.weight") of the parameter that this one is tied to. The first layer with the
	// parameter, in topological order, owns it and has an empty Tied.
	Tied string `json:"tied,omitempty"`
	// NoDecay exempts the parameter from weight decay (biases, normalisation gains).
	NoDecay bool `json:"no_decay,omitempty"`
	// Rows says which rows of the parameter a piece of a layer has; nil: all.
	Rows *Rows `json:"-"`
}

// Learned says whether p has a gradient.
func (p *Param) Learned() bool { return !p.Buffer && !p.Frozen }

// Layer is one node of the DAG, the smallest unit that a plan can put on a stage.
type Layer struct {
	Name    string         `json:"name"`
	Kind    string         `json:"kind"`
	From    []string       `json:"from"` // layers or model inputs that it reads, in order
	Attr    map[string]any `json:"attr"` // settings of the kind, checked, with defaults filled in
	Params  []Param        `json:"params"`
	Outputs []Tensor       `json:"outputs"` // for one sample
	// ForwardFLOPs, InputFLOPs and WeightFLOPs are for one sample, in the forward and in both halves of the
	// backward.
	ForwardFLOPs int64 `json:"forward_flops"`
	InputFLOPs   int64 `json:"input_flops"`
	WeightFLOPs  int64 `json:"weight_flops"`
	// SavedBytes is how many bytes are kept from the forward to the backward of one sample. A float has 4 bytes.
	// SavedBytes is an analytic estimate; a measured profile replaces it.
	SavedBytes int64 `json:"saved_bytes"`
	// Divides says how the layer can be divided; nil: its kind says so (Kind.Features).
	Divides *Features `json:"-"`
	// Piece says which part of a layer this is, in a model that Divide made; nil: a whole layer.
	Piece *Piece `json:"-"`
}

// Model is a network and its inputs. The last layer returns the loss.
type Model struct {
	Name   string   `json:"name"`
	Inputs []Tensor `json:"inputs"` // contents of a batch, by name, for one sample; see Target
	Layers []Layer  `json:"layers"` // in topological order
	// Weights has the initial values of parameters and buffers; nil: they follow from each Param's Init.
	Weights Weights `json:"-"`
	// Positions gives each layer's position in the undivided model (see Divide); nil: the same positions as in this
	// model.
	Positions []int `json:"-"`
}

// Values holds the elements of a tensor, little-endian and row by row.
type Values struct {
	DType string // F32, F64, I64 or BOOL
	Shape []int64
	Data  []byte
}

// Weights gives initial values of parameters and buffers from files.
type Weights interface {
	// Tensor returns the values of a parameter, by its full name. The caller owns the memory of the values. Tensor
	// opens the files that it reads, and any goroutine may call it.
	Tensor(name string) (Values, error)
}
