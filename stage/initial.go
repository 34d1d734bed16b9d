package stage

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
)

func (s *Stage) firstValues(p *Param) (engine.Tensor, error) {
	described := s.Graph.Model.Layers[p.Layer].Params[p.Index]
	switch {
	case s.Initial != nil:
		return s.restored(p, "", s.elementOf(described.DType))
	case s.Graph.Model.Weights != nil:
		return s.given(p, s.elementOf(described.DType))
	case described.Init.Kind == "given":
		return nil, fmt.Errorf("its first values are in a file, which has not been given")
	}
	whole, shape := described, shapeOf(described.Shape)
	if p.rows != nil {
		whole.Shape = p.rows.Shape(described.Shape)
	}
	values := nn.InitialValues(whole, s.Graph.Model.Position(p.Layer), p.Index, s.Seed)
	return s.floats(shape, rowsOf(values, p.rows))
}

// whole is what a parameter is called, and its shape, where it is not divided: what files have.
func (s *Stage) whole(p *Param) (name string, shape []int64) {
	described := &s.Graph.Model.Layers[p.Layer].Params[p.Index]
	if p.rows == nil {
		return p.Name, shapeOf(described.Shape)
	}
	return p.rows.Name, shapeOf(p.rows.Shape(described.Shape))
}

// rowsOf is, of the elements of a whole parameter, those of some rows; nil: all. Elements may be several of a slice's.
func rowsOf[T any](all []T, rows *model.Rows) []T {
	if rows == nil {
		return all
	}
	each := len(all) / rows.Of
	return all[rows.First*each : rows.End*each]
}

// floats makes a tensor of the stage's float type.
func (s *Stage) floats(shape []int64, values []float64) (engine.Tensor, error) {
	if s.Float == engine.Float64 {
		return s.dev.FromBytes(s.Float, shape, engine.Bytes(values))
	}
	narrow := make([]float32, len(values))
	for i, v := range values {
		narrow[i] = float32(v)
	}
	return s.dev.FromBytes(s.Float, shape, engine.Bytes(narrow))
}

// restored is a parameter from Initial, or its state of a name, checked against the shape it must have.
func (s *Stage) restored(p *Param, state string, of engine.DType) (engine.Tensor, error) {
	name, want := s.whole(p)
	if state != "" {
		name = StateName(name, state)
	}
	dtype, shape, data, err := s.Initial(name)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(shape, want) || dtype != of {
		return nil, fmt.Errorf("%s is %v%v; this model needs %v%v", name, dtype, shape, of, want)
	}
	return s.dev.FromBytes(dtype, s.shape(p), rowsOf(data, p.rows))
}

// shape is that of what the stage has of a parameter.
func (s *Stage) shape(p *Param) []int64 {
	return shapeOf(s.Graph.Model.Layers[p.Layer].Params[p.Index].Shape)
}

// elementOf is the element type of a tensor that a model describes.
func (s *Stage) elementOf(d model.DType) engine.DType {
	switch d {
	case model.Int:
		return engine.Int64
	case model.Bool:
		return engine.Bool
	}
	return s.Float
}

// given is a parameter from Weights, floats as the stage's own type.
func (s *Stage) given(p *Param, want engine.DType) (engine.Tensor, error) {
	name, shape := s.whole(p)
	v, err := s.Graph.Model.Weights.Tensor(name)
	if err != nil {
		return nil, err
	}
	is := engine.DTypeNamed(v.DType)
	if !slices.Equal(v.Shape, shape) || is != want && !(is.IsFloat() && want.IsFloat()) {
		return nil, fmt.Errorf("the weights have %s%v; this model needs %v%v", v.DType, v.Shape, want, shape)
	}
	if is == want {
		return s.dev.FromBytes(want, s.shape(p), rowsOf(v.Data, p.rows))
	}
	var wide []float64
	if is == engine.Float64 {
		wide = engine.Numbers[float64](v.Data)
	} else {
		for _, x := range engine.Numbers[float32](v.Data) {
			wide = append(wide, float64(x))
		}
	}
	return s.floats(s.shape(p), rowsOf(wide, p.rows))
}
