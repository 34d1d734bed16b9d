package plan

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/profile"
)

// Fraction returns how much of a layer the stage computes: 1, or less if the layer is divided at the stage's border.
// The layer must be one of the stage's.
func (s *Stage) Fraction(layer int) float64 {
	switch {
	case layer == s.FirstLayer && s.FirstFraction > 0:
		return s.FirstFraction
	case layer == s.LastLayer && s.LastFraction > 0:
		return s.LastFraction
	}
	return 1
}

// Parts returns a text that lists the layers of which the stage computes only a part: "37.5 % of 1". It returns "" if
// all layers are whole.
func (s *Stage) Parts() string {
	var parts []string
	for _, l := range slices.Compact([]int{s.FirstLayer, s.LastLayer}) {
		if f := s.Fraction(l); f < 1 {
			parts = append(parts, fmt.Sprintf("%.4g %% of %d", 100*f, l))
		}
	}
	return strings.Join(parts, ", ")
}

// Layers returns a text that lists a stage's layers: "0-1", or "2" for a single one. If the stage computes only a part
// of a layer, that part is added: "0-1 (37.5 % of 1)".
func (s *Stage) Layers() string {
	text := strconv.Itoa(s.FirstLayer)
	if s.LastLayer > s.FirstLayer {
		text += "-" + strconv.Itoa(s.LastLayer)
	}
	if parts := s.Parts(); parts != "" {
		text += " (" + parts + ")"
	}
	return text
}

// Divided says whether some layer is computed by several stages.
func (p *Plan) Divided() bool {
	return slices.ContainsFunc(p.Stages, func(s Stage) bool {
		return s.Fraction(s.FirstLayer) < 1 || s.Fraction(s.LastLayer) < 1
	})
}

// Shares says whether a stage begins inside the layer in which the previous stage ends.
func (p *Plan) Shares(stage int) bool {
	s := &p.Stages[stage]
	return stage > 0 && s.FirstLayer == p.Stages[stage-1].LastLayer && s.FirstFraction > 0 && s.FirstFraction < 1
}

// parts returns, for each layer, the fractions that its stages compute.
func (p *Plan) parts(layers int) [][]float64 {
	out := make([][]float64, layers)
	for i := range p.Stages {
		s := &p.Stages[i]
		for l := max(0, s.FirstLayer); l <= s.LastLayer && l < layers; l++ {
			out[l] = append(out[l], s.Fraction(l))
		}
	}
	return out
}

// checkParts refuses a layer whose parts do not add up to the whole.
func (p *Plan) checkParts() error {
	if !p.Divided() {
		return nil
	}
	for l, parts := range p.parts(p.Stages[len(p.Stages)-1].LastLayer + 1) {
		sum := 0.0
		for _, part := range parts {
			sum += part
		}
		if math.Abs(sum-1) > 1e-6 {
			return fmt.Errorf("plan: the stages compute %v of layer %d together (first_fraction, "+
				"last_fraction %v); it must be 1",
				sum, l, parts)
		}
	}
	return nil
}

// Runs returns an equivalent plan whose stages are runs of whole layers, and the profile with those layers. The
// layers are in the plan's own order, if it has one. Each piece of a divided layer becomes a layer.
func (p *Plan) Runs(costs *profile.Profile) (*Plan, *profile.Profile, error) {
	costs, err := costs.Ordered(p.Order)
	if err != nil {
		return nil, nil, fmt.Errorf("the plan's order of layers: %w", err)
	}
	for i, s := range p.Stages {
		if s.FirstLayer < 0 || s.LastLayer < s.FirstLayer || s.LastLayer >= len(costs.Layers) {
			return nil, nil, fmt.Errorf("stage %d has layers %d to %d; profile %s has layers 0 to %d",
				i, s.FirstLayer, s.LastLayer, costs.Model, len(costs.Layers)-1)
		}
	}
	if len(p.Order) == 0 && !p.Divided() {
		return p, costs, nil
	}
	runs := *p
	runs.Order = nil
	if !p.Divided() {
		return &runs, costs, nil
	}
	if err := p.checkParts(); err != nil {
		return nil, nil, err
	}
	parts := runs.pieces(len(costs.Layers))
	return &runs, costs.Divided(parts), nil
}

// Pieces returns a plan whose stages are runs of pieces of the model's layers. It also returns the fractions into which
// each layer is divided (model.Model.Divide). `layers` is the number of layers.
func (p *Plan) Pieces(layers int) (*Plan, [][]float64, error) {
	if err := p.checkParts(); err != nil {
		return nil, nil, err
	}
	runs := *p
	return &runs, runs.pieces(layers), nil
}

// pieces renumbers the stages as runs of pieces, and returns each layer's pieces as fractions.
func (p *Plan) pieces(layers int) [][]float64 {
	parts := p.parts(layers)
	p.Stages = slices.Clone(p.Stages)
	at := 0 // number of the next piece
	for i := range p.Stages {
		s := &p.Stages[i]
		n := s.LastLayer - s.FirstLayer
		s.FirstLayer, s.LastLayer, s.FirstFraction, s.LastFraction = at, at+n, 0, 0
		at += n + 1
	}
	return parts
}
