// Package pretrained reads initial values for a model's parameters from published networks.
//
// In: a model, and a safetensors file, a folder of them, or the index of a file that was split into parts
// (model.safetensors.index.json). The tensors have the model's own names, those of GPT-2 for the family gpt, or those
// of Llama for llama. GPT-2 and Llama are read in the form in which Hugging Face publishes them, with the config.json
// beside them, if there is one. Out: the model's Weights, with 16-bit floats as F32 and whole numbers as I64. Refused:
// a tensor that is missing, unknown or of another shape, and the configuration of another network. The error names the
// tensors and, if there is one, the setting that would help. The caller keeps the files in place until training has
// begun, because they are opened whenever a tensor is read.
package pretrained

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/content"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/safetensors"
	"github.com/millrace-ml/millrace/model"
)

// source says where a parameter's values come from.
type source struct {
	name       string // name in the files
	transposed bool   // the file has the matrix as [in, out], the model as [out, in]
	first      bool   // the file may have more rows; only the first ones are used
}

// Weights provides the initial values of all parameters of a model. It implements model.Weights.
type Weights struct {
	from   map[string]source // by full name
	shapes map[string][]int64
	files  *files
	inner  model.Weights // the model's previous Weights, for parameters that no file has
}

// Open compares the tensors at a path with the model. The tensors must have values for the model's parameters and saved
// buffers.
func Open(path string, m *model.Model) (*Weights, error) {
	switch is := content.Of(path); is {
	case content.Network, content.PT2, content.NPZ, content.NPY, content.Pickle:
		return nil, fmt.Errorf("init: %s is %v", names.Shown(path), is)
	}
	w, err := open(path, m)
	if err != nil {
		return nil, fmt.Errorf("init: %s: %s", names.Shown(path), names.Shown(fmt.Sprintf("%.2000v", err)))
	}
	return w, nil
}

func open(path string, m *model.Model) (*Weights, error) {
	f, err := find(path)
	if err != nil {
		return nil, err
	}
	w := &Weights{from: map[string]source{}, shapes: map[string][]int64{}, files: f, inner: m.Weights}
	t, err := tableFor(f, m)
	if err != nil {
		return nil, err
	}
	if t.family != "" {
		if err := cmp.Or(t.check(f, m), t.count(f, m)); err != nil {
			return nil, err
		}
	}
	return w, w.match(t, m)
}

// match finds the source of every parameter. It refuses missing tensors, tensors that no parameter uses, and a
// parameter whose names in the files have different values.
func (w *Weights) match(t *table, m *model.Model) error {
	used := map[string]string{} // by name in the file: the parameter that uses it
	var missing []string
	for _, p := range parameters(m) {
		at, found := source{}, false
		for _, at = range t.sources(p) {
			if _, found = w.files.entries[at.name]; found {
				break
			}
		}
		if !found {
			name := at.name
			if name != p.full {
				name += " (" + p.full + ")"
			}
			missing = append(missing, name)
			continue
		}
		if err := w.fits(p, at); err != nil {
			return err
		}
		for _, other := range t.sources(p) { // other names of the same tensor
			used[other.name] = p.full
		}
		w.from[p.full], w.shapes[p.full] = at, p.shape
	}
	if len(missing) > 0 {
		return fmt.Errorf("there is no %s; %s", some(missing), t.lacks(missing))
	}
	var left []string
	for _, name := range slices.Sorted(maps.Keys(w.files.entries)) {
		if used[name] == "" && !t.ignored(name) {
			left = append(left, name)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("model %s has no parameter for %s", m.Name, some(left))
	}
	return w.sameTwice(t, m)
}

// some joins the names. It shortens a long list to its first names.
func some(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// fits refuses a tensor in the file whose shape or type does not fit the parameter.
func (w *Weights) fits(p parameter, at source) error {
	e := w.files.entries[at.name].Entry
	is, kind := e.Shape, model.Float
	switch e.DType {
	case "F32", "F64", "F16", "BF16":
	case "BOOL":
		kind = model.Bool
	default:
		kind = model.Int
	}
	want := slices.Clone(p.shape)
	if at.transposed {
		slices.Reverse(want)
	}
	rows := at.first && len(is) == len(want) && len(is) > 0 && is[0] >= want[0] && slices.Equal(is[1:], want[1:])
	if kind != p.dtype || !slices.Equal(is, want) && !rows {
		more := ""
		if at.first {
			more = " or more rows"
		}
		return fmt.Errorf("%s is %s%v; %s of this model needs %s%v%s", at.name, e.DType, is, p.full, p.dtype, want, more)
	}
	return nil
}

// sameTwice refuses files in which a parameter has different values under different names.
func (w *Weights) sameTwice(t *table, m *model.Model) error {
	for _, p := range parameters(m) {
		for _, other := range t.sources(p) {
			if _, there := w.files.entries[other.name]; !there || other.name == w.from[p.full].name {
				continue
			}
			if err := w.files.same(w.from[p.full].name, other.name); err != nil {
				return fmt.Errorf("%w; %s is one parameter of this model", err, p.full)
			}
		}
	}
	return nil
}

// Tensor implements model.Weights.
func (w *Weights) Tensor(name string) (model.Values, error) {
	at, ok := w.from[name]
	switch {
	case !ok && w.inner != nil:
		return w.inner.Tensor(name)
	case !ok:
		return model.Values{}, fmt.Errorf("init: the model has no parameter %q of its own", name)
	}
	v, err := w.values(at, w.shapes[name])
	if err != nil {
		return v, fmt.Errorf("init: tensor %s: %w", at.name, err)
	}
	return v, nil
}

func (w *Weights) values(at source, shape []int64) (model.Values, error) {
	e := w.files.entries[at.name]
	size, err := safetensors.Size(e.DType, shape)
	if err != nil {
		return model.Values{}, err
	}
	f, err := document.Open(e.path)
	if err != nil {
		return model.Values{}, err
	}
	defer f.Close()
	v := model.Values{DType: e.DType, Shape: shape, Data: make([]byte, size)}
	if _, err := f.ReadAt(v.Data, e.at); err != nil && (err != io.EOF || size > 0) {
		return v, fmt.Errorf("%w: %s has changed", err, e.path)
	}
	widen(&v)
	if at.transposed {
		v.Data = transposed(v.Data, int(shape[1]), int(shape[0]))
	}
	return v, nil
}

// parameter is a tensor of a model that needs a value.
type parameter struct {
	full  string
	also  []string // its other names, including those in layers that share it
	shape []int64
	dtype model.DType
}

// parameters returns the parameters of a model that a file must have, in the model's order.
func parameters(m *model.Model) []parameter {
	var all []parameter
	at := map[string]int{}
	for i := range m.Layers {
		l := &m.Layers[i]
		for k, p := range l.Params {
			switch {
			case p.Tied != "":
				if owner, ok := at[p.Tied]; ok {
					all[owner].also = append(all[owner].also, l.ParamName(k))
				}
				continue
			case p.Inner:
				continue
			}
			shape := make([]int64, len(p.Shape))
			for d, n := range p.Shape {
				shape[d] = int64(n)
			}
			dtype := p.DType
			if dtype == "" {
				dtype = model.Float
			}
			at[l.ParamName(k)] = len(all)
			all = append(all, parameter{l.ParamName(k), slices.Clone(p.Also), shape, dtype})
		}
	}
	return all
}
