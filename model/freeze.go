package model

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Freeze makes parameters constant: those that a pattern matches get no gradient and no optimizer state. A pattern has
// the form of a shell's (path.Match; * also matches dots), such as "embed", "block0.*" and "*.bias". It is compared
// with a parameter's full name, the beginnings of that name before a dot, and the name of its layer. A tied parameter
// is frozen in all its uses, and a pattern may match the name of any of these uses. For a PyTorch module it may also
// match other names under which the module saves the parameter. Statistics of a batch norm still change, as in PyTorch.
//
// Backwards then cost less. A layer computes weight gradients only for parameters that learn. It computes no gradient
// of its input if no earlier parameter learns.
//
// Freeze refuses patterns that match no parameter, and patterns that leave nothing to learn.
func (m *Model) Freeze(patterns []string) error {
	before := map[string]int64{} // elements that learn, by layer, tied ones included
	for i := range m.Layers {
		before[m.Layers[i].Name] = m.Layers[i].learns()
	}
	frozen := map[string]bool{}
	for _, pattern := range patterns {
		if err := m.match(pattern, frozen); err != nil {
			return err
		}
	}
	for i := range m.Layers {
		l := &m.Layers[i]
		for k := range l.Params {
			if frozen[l.Owned(k)] && !l.Params[k].Buffer {
				l.Params[k].Frozen = true
			}
		}
		n := l.learns()
		if was := before[l.Name]; n < was {
			l.WeightFLOPs = int64(float64(l.WeightFLOPs) * float64(n) / float64(was))
		}
	}
	if !m.costLess() {
		return fmt.Errorf("model %s: freeze %s: nothing would learn that the loss depends on; leave a layer out", m.Name,
			strings.Join(patterns, ","))
	}
	return nil
}

// learns returns the number of elements for which a layer computes gradients.
func (l *Layer) learns() (n int64) {
	for _, p := range l.Params {
		if p.Learned() {
			n += Tensor{Shape: p.Shape}.Elements()
		}
	}
	return n
}

// match adds names to `frozen`. For each parameter that the pattern matches, it adds the full name of the parameter's
// owner.
func (m *Model) match(pattern string, frozen map[string]bool) error {
	if pattern == "" {
		return fmt.Errorf("model %s: freeze %q: it is empty; write a name, or a pattern of * ? [a-z]", m.Name, pattern)
	}
	var all []string
	known := map[string]bool{}
	found, buffer := false, ""
	for i := range m.Layers {
		l := &m.Layers[i]
		for k := range l.Params {
			is := false
			for _, name := range l.called(k) {
				one, err := path.Match(pattern, name)
				if err != nil {
					return fmt.Errorf("model %s: freeze %q: %w; write a name, or a pattern of * ? [a-z]", m.Name, pattern, err)
				}
				is = is || one
				if !known[name] {
					all, known[name] = append(all, name), true
				}
			}
			switch {
			case is && l.Params[k].Buffer:
				buffer = l.ParamName(k)
			case is:
				found, frozen[l.Owned(k)] = true, true
			}
		}
	}
	if found {
		return nil
	}
	if buffer != "" {
		return fmt.Errorf("model %s: freeze %q: it matches buffers alone, such as %s, which do not learn", m.Name, pattern,
			buffer)
	}
	near := strings.Join(nearest(pattern[:min(len(pattern), 100)], all), ", ")
	return fmt.Errorf("model %s: freeze %q matches no parameter; near it: %s", m.Name, pattern, near)
}

// called returns the names that patterns may use for parameter k of a layer: the layer's name, the parameter's full
// names, and their beginnings before a dot.
func (l *Layer) called(k int) []string {
	names := []string{l.Name}
	for _, full := range append([]string{l.ParamName(k)}, l.Params[k].Also...) {
		for at, c := range full {
			if c == '.' {
				names = append(names, full[:at])
			}
		}
		names = append(names, full)
	}
	return names
}

// nearest returns the five names that are most similar to a pattern, by their edit distance.
func nearest(pattern string, all []string) []string {
	changes := map[string]int{}
	for _, name := range all {
		row := make([]int, len(name)+1)
		for k := range row {
			row[k] = k
		}
		for i := range len(pattern) {
			across := row[0]
			row[0] = i + 1
			for k := range len(name) {
				here := across
				if pattern[i] != name[k] {
					here = 1 + min(across, row[k], row[k+1])
				}
				across, row[k+1] = row[k+1], here
			}
		}
		changes[name] = row[len(name)]
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(changes[a], changes[b]) })
	return all[:min(5, len(all))]
}

// costLess removes the cost of the input gradient from layers that no trained parameter precedes. The result `learns`
// says whether the loss depends on anything that is trained.
func (m *Model) costLess() (learns bool) {
	flows := map[string]bool{}
	for i := range m.Layers {
		l := &m.Layers[i]
		behind, reads := false, false
		for _, from := range l.From {
			behind = behind || flows[from]
			reads = reads || m.Index(from) >= 0
		}
		flows[l.Name] = behind || l.learns() > 0
		if reads && !behind {
			l.InputFLOPs = 0
		}
	}
	return flows[m.Layers[len(m.Layers)-1].Name]
}
