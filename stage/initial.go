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
	shape := shapeOf(described.Shape)
	switch {
	case s.Initial != nil:
		return s.restored(p.Name, s.elementOf(described.DType), shape)
	case s.Graph.Model.Weights != nil:
		return s.given(p.Name, s.elementOf(described.DType), shape)
	case described.Init.Kind == "given":
		return nil, fmt.Errorf("its first values are in a file, which has not been given")
	}
	return s.floats(shape, nn.InitialValues(described, p.Layer, p.Index, s.Seed))
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

// restored is a tensor from Initial, checked against the shape it must have.
func (s *Stage) restored(name string, of engine.DType, want []int64) (engine.Tensor, error) {
	dtype, shape, data, err := s.Initial(name)
	if err != nil {
		return nil, err
	}
	t, err := s.dev.FromBytes(dtype, shape, data)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(shape, want) || dtype != of {
		return nil, fmt.Errorf("%s is %v%v; this model needs %v%v", name, dtype, shape, of, want)
	}
	return t, nil
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

// given is a tensor from Weights, floats as the stage's own type.
func (s *Stage) given(name string, want engine.DType, shape []int64) (engine.Tensor, error) {
	v, err := s.Graph.Model.Weights.Tensor(name)
	if err != nil {
		return nil, err
	}
	is := engine.DTypeNamed(v.DType)
	if !slices.Equal(v.Shape, shape) || is != want && !(is.IsFloat() && want.IsFloat()) {
		return nil, fmt.Errorf("the weights have %s%v; this model needs %v%v", v.DType, v.Shape, want, shape)
	}
	if is == want {
		return s.dev.FromBytes(want, shape, v.Data)
	}
	var wide []float64
	if is == engine.Float64 {
		wide = engine.Numbers[float64](v.Data)
	} else {
		for _, x := range engine.Numbers[float32](v.Data) {
			wide = append(wide, float64(x))
		}
	}
	return s.floats(shape, wide)
}
