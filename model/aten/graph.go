// Package aten describes networks as PyTorch calls them: a graph of ATen operators, as data.
//
// In: a file that python/millrace_export.py has written, or one of torch.export.save (package pt2). Out: a Graph, and
// where the elements of its tensors lie in the file. Refused, by name and with what would be right: another version,
// values that nobody makes or that are made twice, nodes out of order, tensors without elements or with elements
// beyond the file, shapes and counts that no machine holds, members that are compressed, encrypted, foreign or damaged.
// Its driver closes the Weights that it was given, whose elements stay in the file.
//
// A Graph is what was traced: in training mode, with the rows of one example. Nothing in it is computed here.
// Whoever makes layers of it must make in-place operators functional, take over what depends on the mode, and find
// out which sizes are the batch.
package aten

// DType is the type of elements, by the names of safetensors: F32, I64, BOOL.
type DType string

// Graph is one call of a module, from its inputs to its loss.
type Graph struct {
	Name    string
	Rows    int64             // of the example: the first dimension of every input
	Inputs  []Input           // in the order of the call; the last one is the target
	Tensors []Tensor          // parameters, buffers, constants
	Aliases map[string]string // other names of parameters that are shared, and whose they are
	Nodes   []Node            // each behind those that it reads of
	Outputs []Output          // the mean loss, then numbers to report; with NoLoss all tensors that the module returns
	NoLoss  bool              // the module returns no loss: one is yet to be added, and with it a target
	Least   int64             // rows that the graph holds for; 0 where nothing is known of it
	Most    int64             // rows that the graph holds for; 0 where there is no limit
	Notes   []string          // what reading has left out, for people
}

// Input is a tensor that a batch gives.
type Input struct {
	Name   string  // in the module's forward
	Shape  []int64 // of the example, rows first
	DType  DType
	Target bool
	Value  int
}

// Role is what a tensor of the module is to its training.
type Role int

// The roles. A constant has no name in the module: tracing made it.
const (
	Parameter Role = iota
	Buffer
	Constant
)

// Tensor is a tensor that the module has before the call.
type Tensor struct {
	Name    string // PyTorch's: "layer1.0.conv1.weight"
	Role    Role
	Shape   []int64
	DType   DType
	Trained bool // a parameter that requires a gradient
	Unsaved bool // a buffer that state_dict leaves out
}

// Node is one call of an operator.
type Node struct {
	Op    string // with its overload: "aten::add.Tensor", "prim::ListConstruct"
	In    []Arg  // by position, then by Name; what is left off has its default
	Out   []Value
	Scope string // path of the module that called it: "layer1.0.conv1"
	Where string // file:line of the user's code, "" where nobody knows: "model.py:12"

	Always bool // a norm that takes its batch's statistics in evaluation too, or a change of a buffer that is made there
}

// Value is what a node yields.
type Value struct {
	ID     int
	Type   string  // "Tensor", "Tensor[]", "int", "int[]", "float", "bool"
	Shape  []int64 // of a Tensor in the example; nil where nobody knows
	Double []int64 // its shape with twice the rows; nil where nobody knows
	DType  DType

	Detached bool // it has no gradient, whatever it is computed of: it was computed under no_grad
}

// Output is a number that the module returns.
type Output struct {
	Name string
	Arg  Arg
}

// Arg is an argument of a call. Kind says which field counts.
type Arg struct {
	Name   string // of a keyword argument, which stands where the schema has that name; empty by position
	Kind   Kind
	Value  int    // FromValue: the ID of an input or of what a node yields
	Tensor string // FromTensor: the name of one of the Graph's
	Int    int64
	Float  float64
	Bool   bool
	Text   string // Word: "mean"; Device: "cpu"
	List   []Arg
}

// Kind is a kind of argument.
type Kind int

// The kinds of arguments.
const (
	None Kind = iota
	FromValue
	FromTensor
	Int
	Float
	Bool
	Word
	Device
	List
)
