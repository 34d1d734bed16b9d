package data

import "fmt"

// pair describes data with one input and its targets.
type pair struct{ input, target Field }

// paired returns the fields of data with one input and its targets. They have the names and shapes that o asks for. If
// the model has only one input and no targets, the data's targets are left out. Without o.Fields, paired returns
// `have`.
func (o Options) paired(name string, have pair) (pair, error) {
	if o.Fields == nil {
		return have, nil
	}
	var inputs []Field
	target := Field{}
	for _, f := range o.Fields {
		if f.Name == o.Target && len(o.Fields) > 1 {
			target = f
		} else {
			inputs = append(inputs, f)
		}
	}
	if len(inputs) != 1 {
		return pair{}, fmt.Errorf("data: %s has one input and its targets, and the model reads %v; give an .npz or "+
			".safetensors file with an array for each", name, o.Fields)
	}
	input := inputs[0]
	if err := takes(name, "inputs", have.input, input); err != nil {
		return pair{}, err
	}
	if target.Name != "" {
		if err := takes(name, "targets", have.target, target); err != nil {
			return pair{}, err
		}
	}
	return pair{input, target}, nil
}

// takes returns an error if a field of the data cannot be read as the wanted field.
func takes(name, what string, have, want Field) error {
	if want.DType != have.DType {
		return fmt.Errorf("data: the %s of %s are %s, and %q is to be %s; gpt, llama and lstm need a text, mlp and "+
			"convnet images or tables, any other model an .npz or .safetensors file with its arrays",
			what, name, have.DType, want.Name, want.DType)
	}
	if want.Elements() != have.Elements() {
		return fmt.Errorf("data: %s has %s of shape %v, which cannot be read as %q of shape %v", name, what, have.Shape,
			want.Name, want.Shape)
	}
	return nil
}

// batch returns both arrays under their names, with their shapes.
func (p pair) batch(input, target Array, rows int) Batch {
	input.Shape, target.Shape = append([]int{rows}, p.input.Shape...), append([]int{rows}, p.target.Shape...)
	b := Batch{p.input.Name: input}
	if p.target.Name != "" {
		b[p.target.Name] = target
	}
	return b
}

// fields returns the fields of a batch.
func (p pair) fields() []Field {
	if p.target.Name == "" {
		return []Field{p.input}
	}
	return []Field{p.input, p.target}
}
