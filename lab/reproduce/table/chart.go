package table

// Chart is a chart of lines or of bars, like the figures of a paper.
type Chart struct {
	Title string `json:"title"`
	// Bars names the groups of bars. Each group has one bar for each of Lines. If Bars is empty, the chart has lines.
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
