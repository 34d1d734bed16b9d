package stage

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
)

// maker makes the parameters of a stage with their initial values, which come from Initial or from the model's Weights,
// or are drawn. States come from Initial or start at zero.
type maker struct {
	c    *Config
	to   *Params
	name map[string]*Param // the parameters made so far
}

// makeParams makes every parameter that a layer of the stage reads, and adds it to `to`. The caller frees these
// parameters, even after an error.
func makeParams(c *Config, to *Params) error {
	m := maker{c: c, to: to, name: map[string]*Param{}}
	to.leaves = make([][]engine.Tensor, c.Last-c.First+1)
	for l := c.First; l <= c.Last; l++ {
		for i := range c.Graph.Model.Layers[l].Params {
			if err := m.use(l, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// use makes layer l read its parameter i. It makes the parameter, unless an earlier layer of the stage reads the same
// parameter.
func (m *maker) use(l, i int) error {
	name, owner, index, err := ownerOf(m.c.Graph.Model, l, i)
	if err != nil {
		return err
	}
	p := m.name[name]
	if p == nil {
		if p, err = m.make(name, owner, index); err != nil {
			return fmt.Errorf("stage: parameter %s: %w", name, err)
		}
	}
	leaf := p.Value
	if len(p.Uses) > 0 && p.learned() {
		if leaf, err = m.c.Device.Leaf(p.Value, true); err != nil {
			return fmt.Errorf("stage: parameter %s: %w", name, err)
		}
		m.c.Device.Disown(leaf)
	}
	p.Uses = append(p.Uses, Use{Layer: l, leaf: leaf})
	m.to.leaves[l-m.c.First] = append(m.to.leaves[l-m.c.First], leaf)
	return nil
}

// make makes the parameter at position `index` among those of layer `owner`.
func (m *maker) make(name string, owner, index int) (*Param, error) {
	described := &m.c.Graph.Model.Layers[owner].Params[index]
	p := &Param{
		Name: name, Layer: owner, Index: index, Buffer: described.Buffer, Frozen: described.Frozen,
		NoDecay: described.NoDecay, Owned: owner >= m.c.First && owner <= m.c.Last,
		Shared: usedOutside(m.c.Graph.Model, name, m.c.First, m.c.Last), rows: described.Rows,
	}
	m.name[name] = p
	switch {
	case p.Frozen:
		m.to.Frozen = append(m.to.Frozen, p)
	case p.Buffer:
		m.to.Buffers = append(m.to.Buffers, p)
	default:
		m.to.Learned = append(m.to.Learned, p)
	}
	if m.c.Before != nil {
		p.before = m.c.Before(owner)
	}
	scope := m.c.Device.Begin()
	defer m.c.Device.End(scope)
	return p, m.fill(p)
}

// fill sets p's initial value and its states. These tensors outlive the innermost scope.
func (m *maker) fill(p *Param) error {
	dev := m.c.Device
	first, err := m.firstValues(p)
	if err != nil {
		return err
	}
	leaf, err := dev.Leaf(first, p.learned())
	if err != nil {
		return err
	}
	p.Value = dev.Disown(leaf)
	if !p.learned() {
		return nil
	}
	for _, state := range m.c.States {
		var t engine.Tensor
		if m.c.Initial == nil {
			t, err = dev.Full(first.DType(), first.Shape(), 0)
		} else {
			t, err = m.restored(p, state, m.c.Float)
		}
		if err != nil {
			return err
		}
		p.State = append(p.State, dev.Disown(t))
	}
	return nil
}

func (m *maker) firstValues(p *Param) (engine.Tensor, error) {
	described := m.c.Graph.Model.Layers[p.Layer].Params[p.Index]
	switch {
	case m.c.Initial != nil:
		return m.restored(p, "", m.elementOf(described.DType))
	case m.c.Graph.Model.Weights != nil:
		return m.given(p, m.elementOf(described.DType))
	case described.Init.Kind == "given":
		return nil, fmt.Errorf("its first values are in a file, which has not been given")
	}
	whole, shape := described, shapeOf(described.Shape)
	if p.rows != nil {
		whole.Shape = p.rows.Shape(described.Shape)
	}
	values := nn.InitialValues(whole, m.c.Graph.Model.Position(p.Layer), p.Index, m.c.Seed)
	return m.floats(shape, rowsOf(values, p.rows))
}

// whole returns the name and the shape that a parameter has in files. If its layer is divided, these are the name and
// the shape of the whole parameter.
func (m *maker) whole(p *Param) (name string, shape []int64) {
	described := &m.c.Graph.Model.Layers[p.Layer].Params[p.Index]
	if p.rows == nil {
		return p.Name, shapeOf(described.Shape)
	}
	return p.rows.Name, shapeOf(p.rows.Shape(described.Shape))
}

// rowsOf returns the elements of some rows of a whole parameter. If `rows` is nil, it returns all elements. Several
// elements of the slice, such as bytes, may make up one element of the parameter.
func rowsOf[T any](all []T, rows *model.Rows) []T {
	if rows == nil {
		return all
	}
	each := len(all) / rows.Of
	return all[rows.First*each : rows.End*each]
}

// floats makes a tensor of the stage's float type.
func (m *maker) floats(shape []int64, values []float64) (engine.Tensor, error) {
	if m.c.Float == engine.Float64 {
		return m.c.Device.FromBytes(m.c.Float, shape, engine.Bytes(values))
	}
	narrow := make([]float32, len(values))
	for i, v := range values {
		narrow[i] = float32(v)
	}
	return m.c.Device.FromBytes(m.c.Float, shape, engine.Bytes(narrow))
}

// restored returns a parameter, or one of its states, from Initial. It checks the type and the shape.
func (m *maker) restored(p *Param, state string, of engine.DType) (engine.Tensor, error) {
	name, want := m.whole(p)
	if state != "" {
		name = StateName(name, state)
	}
	dtype, shape, data, err := m.c.Initial(name)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(shape, want) || dtype != of {
		return nil, fmt.Errorf("%s is %v%v; this model needs %v%v", name, dtype, shape, of, want)
	}
	return m.c.Device.FromBytes(dtype, m.shape(p), rowsOf(data, p.rows))
}

// shape returns the shape of the stage's part of a parameter.
func (m *maker) shape(p *Param) []int64 {
	return shapeOf(m.c.Graph.Model.Layers[p.Layer].Params[p.Index].Shape)
}

// elementOf returns the element type of a tensor that a model describes.
func (m *maker) elementOf(d model.DType) engine.DType {
	switch d {
	case model.Int:
		return engine.Int64
	case model.Bool:
		return engine.Bool
	}
	return m.c.Float
}

// given returns a parameter from Weights. It converts floating-point numbers to the stage's own type.
func (m *maker) given(p *Param, want engine.DType) (engine.Tensor, error) {
	name, shape := m.whole(p)
	v, err := m.c.Graph.Model.Weights.Tensor(name)
	if err != nil {
		return nil, err
	}
	is := engine.DTypeNamed(v.DType)
	if !slices.Equal(v.Shape, shape) || is != want && !(is.IsFloat() && want.IsFloat()) {
		return nil, fmt.Errorf("the weights have %s%v; this model needs %v%v", v.DType, v.Shape, want, shape)
	}
	if is == want {
		return m.c.Device.FromBytes(want, m.shape(p), rowsOf(v.Data, p.rows))
	}
	var wide []float64
	if is == engine.Float64 {
		wide = engine.Numbers[float64](v.Data)
	} else {
		for _, x := range engine.Numbers[float32](v.Data) {
			wide = append(wide, float64(x))
		}
	}
	return m.floats(m.shape(p), rowsOf(wide, p.rows))
}

func shapeOf(dims []int) []int64 {
	shape := make([]int64, len(dims))
	for i, n := range dims {
		shape[i] = int64(n)
	}
	return shape
}
