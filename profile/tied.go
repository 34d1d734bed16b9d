package profile

// TiedLayers groups the layers that share a parameter: an owner and all that are tied to it.
func (p *Profile) TiedLayers() [][]int {
	groups := make([][]int, len(p.Layers))
	for l, layer := range p.Layers {
		if owner := layer.TiedTo; owner >= 0 {
			if groups[owner] == nil {
				groups[owner] = []int{owner}
			}
			groups[owner] = append(groups[owner], l)
		}
	}
	var out [][]int
	for _, g := range groups {
		if g != nil {
			out = append(out, g)
		}
	}
	return out
}
