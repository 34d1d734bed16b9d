package table

// Chart is lines over an axis, or bars, as a figure of a paper draws them.
type Chart struct {
	Title string `json:"title"`
	// Bars are the names of groups of bars, of which each of Lines has one; none: lines.
	Bars  []string `json:"bars,omitempty"`
	X     string   `json:"x"` // what the axes are
	Y     string   `json:"y"`
	Log   bool     `json:"log,omitempty"` // of x
	Lines []Line   `json:"lines"`
}

// Line is points in the order of X, or a bar of each group; Theirs is of the paper.
type Line struct {
	Name   string    `json:"name"`
	X      []float64 `json:"x,omitempty"`
	Y      []float64 `json:"y"`
	Theirs bool      `json:"theirs,omitempty"`
}
