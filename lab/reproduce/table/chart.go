package table

// Chart is a figure of lines over an axis, or of bars, as in a paper.
type Chart struct {
	Title string `json:"title"`
	// Bars names groups of bars, with one bar for each of Lines; empty means lines.
	Bars  []string `json:"bars,omitempty"`
	X     string   `json:"x"` // X and Y are the labels of the axes
	Y     string   `json:"y"`
	Log   bool     `json:"log,omitempty"` // logarithmic x axis
	Lines []Line   `json:"lines"`
}

// Line has points in the order of X, or one bar for each group. Theirs means that the values are the paper's.
type Line struct {
	Name   string    `json:"name"`
	X      []float64 `json:"x,omitempty"`
	Y      []float64 `json:"y"`
	Theirs bool      `json:"theirs,omitempty"`
}
