// Package aten describes networks in terms of PyTorch's operators: a graph of ATen operators, as data.
//
// In: a file written by python/millrace_export.py, or by torch.export.save (package pt2). Out: a Graph, and where the
// elements of its tensors are in the file. Refused, with the name and what would be right: other versions; values that
// no node makes or that are made twice, and nodes out of order; tensors without elements or with elements beyond the
// file; impossible shapes and counts; zip members that are compressed, encrypted, foreign or damaged. The caller closes
// the Weights that it gets; the elements stay in the file.
//
// A Graph is a trace in training mode, with the rows of one example. This package computes nothing. Code that makes
// layers from a Graph must replace in-place operators by functional ones, handle operators that depend on the mode, and
// find out which sizes are the batch.
package aten

// DType is an element type with its name in safetensors: F32, I64, BOOL.
type DType string

// Graph is one call of a module, from its inputs to its loss.
type Graph struct {
	Name    string
	Rows    int64             // rows of the example: the first dimension of every input
	Inputs  []Input           // in the order of the call; the last one is the target, unless NoLoss
	Tensors []Tensor          // parameters, buffers, constants
	Aliases map[string]string // other names of shared parameters, each with the name of its owner
	Nodes   []Node            // each after the nodes whose values it reads
	Outputs []Output          // the mean loss, then numbers to report; with NoLoss all tensors that the module returns
	NoLoss  bool              // the module returns no loss: a loss and a target must be added
	Least   int64             // smallest number of rows that the graph is valid for; 0: unknown
	Most    int64             // largest number of rows that the graph is valid for; 0: no limit
	Notes   []string          // what the reader has left out, for the user
}

// Input is a tensor that comes from a batch.
type Input struct {
	Name   string  // its name in the module's forward
	Shape  []int64 // of the example, rows first
	DType  DType
	Target bool
	Value  int
}

// Role says what a tensor is in its module.
type Role int

// The roles of tensors. A Constant was made by the trace, so it has no name in the module.
const (
	Parameter Role = iota
	Buffer
	Constant
)

// Tensor is a tensor that the module has before the call.
type Tensor struct {
	Name    string // PyTorch's name: "layer1.0.conv1.weight"
	Role    Role
	Shape   []int64
	DType   DType
	Trained bool // it is a parameter and requires a gradient
	Unsaved bool // it is a buffer that state_dict leaves out
}

// Node is one call of an operator.
type Node struct {
	Op    string // with its overload: "aten::add.Tensor", "prim::ListConstruct"
	In    []Arg  // positional arguments, then those with a Name; an omitted argument has its default
	Out   []Value
	Scope string // path of the calling module: "layer1.0.conv1"
	Where string // file:line of the user's code, "model.py:12"; "" if unknown

	Always bool // it also runs in evaluation: a norm that uses its batch's statistics, or a change of a buffer
}

// Value is a result of a node.
type Value struct {
	ID     int
	Type   string  // "Tensor", "Tensor[]", "int", "int[]", "float", "bool"
	Shape  []int64 // shape of a Tensor in the example; nil if unknown
	Double []int64 // the shape if the example has twice the rows; nil if unknown
	DType  DType

	Detached bool // it was computed under no_grad, so it has no gradient
}

// Output is a number that the module returns; with NoLoss it is any tensor.
type Output struct {
	Name string
	Arg  Arg
}

// Arg is an argument of a call. Kind says which field is used.
type Arg struct {
	Name   string // name of a keyword argument in the operator's schema; empty for a positional argument
	Kind   Kind
	Value  int    // FromValue: the ID of an input or of a node's result
	Tensor string // FromTensor: the name of one of the Graph's tensors
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
