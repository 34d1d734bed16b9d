package pt2

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/model/aten"
)

func (b *builder) argument(u union) (aten.Arg, error) {
	switch u.kind {
	case "as_none":
		return aten.Arg{}, nil
	case "as_int":
		return plain(u, integer)
	case "as_float":
		return plain(u, float)
	case "as_bool":
		return plain(u, boolean)
	case "as_string":
		return plain(u, word)
	case "as_ints":
		return list(u, integer)
	case "as_floats":
		return list(u, float)
	case "as_bools":
		return list(u, boolean)
	case "as_strings":
		return list(u, word)
	case "as_tensor":
		return plain(u, b.tensorArgument)
	case "as_tensors":
		return list(u, b.tensorArgument)
	case "as_optional_tensor", "as_sym_int", "as_sym_float", "as_sym_bool":
		inner, err := as[union](u)
		if err != nil {
			return aten.Arg{}, err
		}
		return b.member(u.kind, inner)
	case "as_optional_tensors", "as_sym_ints", "as_sym_floats", "as_sym_bools":
		return list(u, func(inner union) (aten.Arg, error) { return b.member(strings.TrimSuffix(u.kind, "s"), inner) })
	case "as_int_lists":
		return list(u, func(inner []int64) (aten.Arg, error) { return listOf(inner, integer) })
	case "as_nested_tensors":
		return list(u, func(inner []named) (aten.Arg, error) { return listOf(inner, b.tensorArgument) })
	case "as_scalar_type", "as_memory_format", "as_layout":
		return enumerated(u)
	case "as_device":
		d, err := as[struct {
			Type string `json:"type"`
		}](u)
		return aten.Arg{Kind: aten.Device, Text: d.Type}, errors.Join(err, names.Check(d.Type))
	case "as_graph":
		return aten.Arg{}, fmt.Errorf("it is an inner graph (control flow): write forward without it")
	case "as_custom_obj", "as_operator", "as_complex", "as_string_to_argument":
		return aten.Arg{}, fmt.Errorf("it is %s: tensors, numbers, words and lists of them are read", u.kind)
	}
	return aten.Arg{}, fmt.Errorf("it is of the kind %.40q, which schema 8.17 does not have", u.kind)
}

func integer(n int64) (aten.Arg, error) { return aten.Arg{Kind: aten.Int, Int: n}, nil }
func float(n number) (aten.Arg, error)  { return aten.Arg{Kind: aten.Float, Float: float64(n)}, nil }
func boolean(yes bool) (aten.Arg, error) {
	return aten.Arg{Kind: aten.Bool, Bool: yes}, nil
}
func word(text string) (aten.Arg, error) {
	return aten.Arg{Kind: aten.Word, Text: text}, names.Check(text)
}

func (b *builder) tensorArgument(n named) (aten.Arg, error) { return b.find(n.Name, "Tensor") }

// plain converts an argument that is not a list.
func plain[T any](u union, arg func(T) (aten.Arg, error)) (aten.Arg, error) {
	value, err := as[T](u)
	if err != nil {
		return aten.Arg{}, err
	}
	return arg(value)
}

// list converts an argument that is a list.
func list[T any](u union, arg func(T) (aten.Arg, error)) (aten.Arg, error) {
	values, err := as[[]T](u)
	if err != nil {
		return aten.Arg{}, err
	}
	return listOf(values, arg)
}

func listOf[T any](values []T, arg func(T) (aten.Arg, error)) (aten.Arg, error) {
	all := aten.Arg{Kind: aten.List, List: make([]aten.Arg, len(values))}
	for i, v := range values {
		var err error
		if all.List[i], err = arg(v); err != nil {
			return aten.Arg{}, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return all, nil
}

// member converts an argument that is either a value of the graph or a plain one: an optional tensor (as_tensor or
// as_none), or a number such as as_sym_int (as_name or as_int).
func (b *builder) member(kind string, u union) (aten.Arg, error) {
	switch {
	case u.kind == "as_none" && kind == "as_optional_tensor":
		return aten.Arg{}, nil
	case u.kind == "as_tensor" && kind == "as_optional_tensor":
		return plain(u, b.tensorArgument)
	case u.kind == "as_name" && kind != "as_optional_tensor":
		return plain(u, func(name string) (aten.Arg, error) { return b.find(name, strings.TrimPrefix(kind, "as_sym_")) })
	case u.kind == "as_int" && kind == "as_sym_int":
		return plain(u, integer)
	case u.kind == "as_float" && kind == "as_sym_float":
		return plain(u, float)
	case u.kind == "as_bool" && kind == "as_sym_bool":
		return plain(u, boolean)
	}
	return aten.Arg{}, fmt.Errorf("%s has %.40q", kind, u.kind)
}

// enumerated converts a type, memory format or layout to the number that PyTorch's operators take.
func enumerated(u union) (aten.Arg, error) {
	n, err := as[int](u)
	if err != nil {
		return aten.Arg{}, err
	}
	switch u.kind {
	case "as_scalar_type":
		k, err := findKind(n)
		return aten.Arg{Kind: aten.Int, Int: k.torch}, err
	case "as_layout":
		if n == strided {
			return aten.Arg{Kind: aten.Int, Int: 0}, nil
		}
		return aten.Arg{}, fmt.Errorf("its layout is number %d of the schema: only strided ones (7) are read", n)
	}
	formats := map[int]int64{1: 0, 2: 2, 3: 3, 4: 1} // contiguous, channels last, channels last in 3D, preserve
	format, ok := formats[n]
	if !ok {
		return aten.Arg{}, fmt.Errorf("its memory format is number %d of the schema: 1 to 4 are known", n)
	}
	return aten.Arg{Kind: aten.Int, Int: format}, nil
}
