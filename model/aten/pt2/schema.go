package pt2

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model/aten"
)

// program and the other types of this file follow torch/_export/serde/schema.yaml, with only the fields that are
// needed. Unknown fields, which a minor version may add, are ignored. Unknown members of unions are refused.
type program struct {
	Module struct {
		Graph     graph     `json:"graph"`
		Signature signature `json:"signature"`
		Calls     []struct {
			Path      string `json:"fqn"`
			Signature *struct {
				Out   string   `json:"out_spec"`
				Names []string `json:"forward_arg_names"`
			} `json:"signature"`
		} `json:"module_call_graph"`
		Tuples table[struct {
			Fields []string `json:"field_names"`
		}] `json:"treespec_namedtuple_fields"`
	} `json:"graph_module"`
	Ranges table[struct {
		Min limit `json:"min_val"`
		Max limit `json:"max_val"`
	}] `json:"range_constraints"`
	Version *struct {
		Major int `json:"major"`
		Minor int `json:"minor"`
	} `json:"schema_version"`
	Dialects []string `json:"verifiers"`
	Torch    string   `json:"torch_version"`
}

type graph struct {
	Inputs  []union           `json:"inputs"`
	Outputs []union           `json:"outputs"`
	Nodes   []node            `json:"nodes"`
	Tensors table[tensorMeta] `json:"tensor_values"`
}

type signature struct {
	Inputs  []union `json:"input_specs"`
	Outputs []union `json:"output_specs"`
}

type node struct {
	Target string   `json:"target"`
	In     []given  `json:"inputs"`
	Out    []union  `json:"outputs"`
	Meta   metadata `json:"metadata"`
}

// metadata says where a node comes from.
type metadata struct {
	Modules string `json:"nn_module_stack"`
	Stack   string `json:"stack_trace"`
}

// given is an argument of a node, with its name in the operator's schema.
type given struct {
	Name string `json:"name"`
	Arg  union  `json:"arg"`
	Kind int    `json:"kind"` // 1 by position, 2 by keyword, 0 if an older writer does not say
}

type named struct {
	Name string `json:"name"`
}

// spec says what an input or output of the graph means in the module.
type spec struct {
	Arg        json.RawMessage `json:"arg"`
	Parameter  string          `json:"parameter_name"`
	Buffer     string          `json:"buffer_name"`
	Constant   string          `json:"tensor_constant_name"`
	Persistent *bool           `json:"persistent"`
	Object     string          `json:"custom_obj_name"`
	Name       string          `json:"name"`
	Value      union           `json:"value"`
}

type tensorMeta struct {
	DType   int     `json:"dtype"`
	Sizes   []union `json:"sizes"`
	Grad    bool    `json:"requires_grad"`
	Strides []union `json:"strides"`
	Offset  union   `json:"storage_offset"`
	Layout  int     `json:"layout"`
}

type payload struct {
	Path   string      `json:"path_name"`
	Pickle bool        `json:"use_pickle"`
	Meta   *tensorMeta `json:"tensor_meta"`
}

type payloads struct {
	Config table[payload] `json:"config"`
}

// check refuses unsupported versions and dialects.
func (p *program) check() error {
	if p.Version == nil {
		return fmt.Errorf("schema_version is missing: give a file of torch.export.save")
	}
	if p.Version.Major != 8 {
		return fmt.Errorf("schema_version is %d.%d (torch %.40s): 8 is read, which torch 2.9 to 2.11 write; load the model "+
			"with the torch that wrote it, export and save it with one of those", p.Version.Major, p.Version.Minor, p.Torch)
	}
	if len(p.Dialects) > 0 && !slices.Contains(p.Dialects, "TRAINING") {
		return fmt.Errorf("the graph is of the dialect %.80s, which is decomposed and does not train as written: save what "+
			"torch.export.export returns, before run_decompositions and without to_edge",
			strings.Join(p.Dialects, ", "))
	}
	return nil
}

// kindOf is an element type: its number in schema.yaml, its name, its size, and PyTorch's number in operators.
type kindOf struct {
	serial int
	dtype  aten.DType
	bytes  int64
	torch  int64
}

var kinds = []kindOf{
	{1, "U8", 1, 0}, {2, "I8", 1, 1}, {3, "I16", 2, 2}, {4, "I32", 4, 3}, {5, "I64", 8, 4}, {6, "F16", 2, 5},
	{7, "F32", 4, 6}, {8, "F64", 8, 7}, {12, "BOOL", 1, 11}, {13, "BF16", 2, 15},
}

// float says whether elements are real numbers, which can have gradients.
func (k kindOf) float() bool { return k.dtype == "BF16" || strings.HasPrefix(string(k.dtype), "F") }

func findKind(serial int) (kindOf, error) {
	for _, k := range kinds {
		if k.serial == serial {
			return k, nil
		}
	}
	return kindOf{}, fmt.Errorf("its type of elements is number %d of the schema (9 to 11 are complex, 28 to 32 "+
		"uint16 and 8-bit floats): use float, int or bool", serial)
}

// symbolic is a size that may depend on the inputs.
type symbolic struct {
	value  int64  // the size with the example inputs
	known  bool   // the file gives the value
	symbol string // "s77", or a longer expression; empty for a plain number
}

func sizeOf(u union) (symbolic, error) {
	switch u.kind {
	case "as_int":
		n, err := as[int64](u)
		return symbolic{value: n, known: true}, err
	case "as_expr":
		e, err := as[struct {
			Text string `json:"expr_str"`
			Hint union  `json:"hint"`
		}](u)
		if err != nil {
			return symbolic{}, err
		}
		s := symbolic{symbol: symbolOf(e.Text)}
		if e.Hint.kind == "as_int" {
			s.value, err = as[int64](e.Hint)
			s.known = true
		}
		if s.symbol == "" {
			return s, fmt.Errorf("a size has an empty expr_str")
		}
		return s, err
	}
	return symbolic{}, fmt.Errorf("a size is %.40q: as_int and as_expr are known", u.kind)
}

// symbolOf extracts a symbol's name from sympy's text: Symbol('s77', integer=True).
func symbolOf(text string) string {
	if inner, ok := strings.CutPrefix(text, "Symbol('"); ok && strings.Count(text, "(") == 1 {
		name, _, _ := strings.Cut(inner, "'")
		return name
	}
	return text
}

const (
	maxDims  = 64
	maxCount = 1 << 40 // elements of a tensor
)

// shapeOf returns sizes as a shape and as symbols. The shape is nil if one of the sizes is unknown.
func shapeOf(sizes []union) (shape []int64, symbols []string, err error) {
	if len(sizes) > maxDims {
		return nil, nil, fmt.Errorf("it has %d dimensions: at most %d", len(sizes), maxDims)
	}
	known := true
	shape, symbols = make([]int64, len(sizes)), make([]string, len(sizes))
	for i, u := range sizes {
		s, err := sizeOf(u)
		if err != nil {
			return nil, nil, err
		}
		known = known && s.known
		shape[i], symbols[i] = s.value, s.symbol
	}
	if !known {
		return nil, symbols, nil
	}
	_, err = countOf(shape)
	return shape, symbols, err
}

func countOf(shape []int64) (int64, error) {
	count, zero := int64(1), false
	for _, d := range shape {
		if d < 0 || d > maxCount {
			return 0, fmt.Errorf("its shape is %v: sizes are 0 to %d", shape, int64(maxCount))
		}
		if zero = zero || d == 0; zero {
			continue
		}
		if count > maxCount/d {
			return 0, fmt.Errorf("its shape is %v: at most %d elements", shape, int64(maxCount))
		}
		count *= d
	}
	if zero {
		return 0, nil
	}
	return count, nil
}
