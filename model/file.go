package model

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/strictyaml"
)

// file is the YAML form of a model:
//
//	name: mine
//	inputs:
//	  - {name: input, shape: [64], dtype: float}
//	  - {name: target, shape: [], dtype: int}
//	layers:
//	  - {name: a, kind: dense, width: 32, activation: relu}   # from: the layer before it
//	  - {name: b, kind: dense, width: 32, from: [a]}
//	  - {name: c, kind: add, from: [a, b]}
//	  - {name: loss, kind: cross_entropy, from: [c, target]}
type file struct {
	Name   string           `yaml:"name"`
	Inputs []Tensor         `yaml:"inputs"`
	Layers []map[string]any `yaml:"layers"`
}

// IsFile says whether Load reads a word as the path of a YAML file, and not as the name of a built-in model. This is so
// if the word ends in .yaml or .yml.
func IsFile(nameOrPath string) bool {
	return strings.HasSuffix(nameOrPath, ".yaml") || strings.HasSuffix(nameOrPath, ".yml")
}

// Load makes a model from the name of a built-in one, or from a YAML file; see IsFile.
func Load(nameOrPath string, settings map[string]any) (*Model, error) {
	if !IsFile(nameOrPath) {
		return Build(nameOrPath, settings)
	}
	if len(settings) > 0 {
		return nil, fmt.Errorf("model: %s: settings %v belong in the file itself", nameOrPath, sortedKeys(settings))
	}
	return files.Read(nameOrPath)
}

var files = document.Store[Model]{Room: "model", Bytes: strictyaml.MaxBytes, InFile: strictyaml.InFile, Decode: decode}

// Parse reads the YAML form. Unknown keys are errors that quote the line.
func Parse(r io.Reader) (*Model, error) { return files.From(r) }

func decode(source []byte) (*Model, error) {
	var f file
	if err := strictyaml.Decode(source, &f); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("model: the file is empty; it has name, inputs and layers")
		}
		return nil, fmt.Errorf("model: %w", err)
	}
	m, err := f.model()
	var bad *layerError
	if errors.As(err, &bad) {
		if excerpt := excerpt(source, bad.position); excerpt != "" {
			return nil, fmt.Errorf("%w\n%s", err, excerpt)
		}
	}
	return m, err
}

// excerpt returns the text around a layer's entry with its line marked, or "" if the library cannot find it.
func excerpt(source []byte, layer int) (text string) {
	defer func() {
		if recover() != nil {
			text = ""
		}
	}()
	path, err := yaml.PathString(fmt.Sprintf("$.layers[%d]", layer))
	if err != nil {
		return ""
	}
	marked, err := path.AnnotateSource(source, false)
	if err != nil {
		return ""
	}
	return string(marked)
}

// model makes and checks the model of a file.
func (f *file) model() (*Model, error) {
	if f.Name == "" {
		return nil, fmt.Errorf("model: the file gives no name")
	}
	if err := names.Check(f.Name); err != nil {
		return nil, fmt.Errorf("model: the file has %w", err)
	}
	for i, in := range f.Inputs {
		if in.Name == "" || strings.ContainsAny(in.Name, " \t\r\n/") {
			return nil, fmt.Errorf("model: %s: an input is named %q; a name has letters and no spaces or slashes", f.Name,
				in.Name)
		}
		if err := names.Check(in.Name); err != nil {
			return nil, fmt.Errorf("model: %s: an input has %w", f.Name, err)
		}
		if slices.ContainsFunc(f.Inputs[:i], func(before Tensor) bool { return before.Name == in.Name }) {
			return nil, fmt.Errorf("model: %s: two inputs are named %q", f.Name, in.Name)
		}
		if in.DType != Float && in.DType != Int && in.DType != Bool {
			return nil, fmt.Errorf("model: %s: input %q has dtype %q; it is float, int or bool", f.Name, in.Name, in.DType)
		}
		for _, d := range in.Shape {
			if d < 1 || d > 1<<24 {
				return nil, fmt.Errorf("model: %s: input %q has shape %v; sizes are 1 to 2^24", f.Name, in.Name, in.Shape)
			}
		}
		if !fits(in.Shape, maxSample) {
			return nil, fmt.Errorf("model: %s: input %q has shape %v; a sample has 2^30 elements at most", f.Name,
				in.Name, in.Shape)
		}
	}
	var nodes []node
	for i, entry := range f.Layers {
		n := node{Settings: map[string]any{}}
		for key, v := range entry {
			switch key {
			case "name", "kind":
				word, ok := v.(string)
				if !ok {
					return nil, fmt.Errorf("model: %s: %w", f.Name,
						&layerError{i, fmt.Errorf("layer %d: %s is %v; it is a word", i, key, v)})
				}
				if key == "name" {
					n.Name = word
				} else {
					n.Kind = word
				}
			case "from":
				from, err := words(v)
				if err != nil {
					return nil, fmt.Errorf("model: %s: %w", f.Name, &layerError{i, fmt.Errorf("layer %d: from: %w", i, err)})
				}
				n.From = from
			default:
				n.Settings[key] = v
			}
		}
		if n.From == nil {
			switch {
			case i > 0:
				n.From = []string{nodes[i-1].Name}
			case len(f.Inputs) > 0:
				n.From = []string{f.Inputs[0].Name}
			}
		}
		nodes = append(nodes, n)
	}
	m, err := assemble(f.Name, f.Inputs, nodes)
	if err != nil {
		return nil, err
	}
	last := m.Layers[len(m.Layers)-1]
	if last.Kind != "cross_entropy" && (len(last.Outputs) == 0 || last.Outputs[0].Name != "loss") {
		return nil, fmt.Errorf("model: %s: the last layer %q yields no loss; end with a cross_entropy layer",
			f.Name, last.Name)
	}
	return m, nil
}

func words(v any) ([]string, error) {
	if s, ok := v.(string); ok {
		return []string{s}, nil
	}
	items, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%v is not a list of names", v)
	}
	out := []string{}
	for _, item := range items {
		s, ok := item.(string)
		if !ok {
			return nil, fmt.Errorf("%v is not a name", item)
		}
		out = append(out, s)
	}
	return out, nil
}
