package race

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Unit converts samples to the unit of a table: 128 tokens per row of a gpt, 1 image per row of a convnet.
type Unit struct {
	Name      string // plural: tokens, images
	PerSample int
}

// rate formats a rate in whole units, with separators for thousands. `samples` is the rate in samples per second.
func (u Unit) rate(samples float64) string {
	digits := strconv.FormatInt(int64(samples*float64(u.PerSample)+0.5), 10)
	var groups []string
	for len(digits) > 3 {
		groups = append(groups, digits[len(digits)-3:])
		digits = digits[:len(digits)-3]
	}
	groups = append(groups, digits)
	slices.Reverse(groups)
	return strings.Join(groups, ",")
}

// WriteResults writes comparisons as a Markdown table, in the order given.
func WriteResults(w io.Writer, unit Unit, results []Result) error {
	rows := [][]string{}
	for _, r := range results {
		rows = append(rows, []string{
			r.A.Name, r.B.Name, unit.rate(r.A.Median), unit.rate(r.B.Median),
			fmt.Sprintf("%.3f", r.MedianRatio),
			fmt.Sprintf("%.3f to %.3f (%.1f %%)", r.Lo, r.Hi, 100*r.Confidence),
			strconv.Itoa(len(r.Ratios)),
		})
	}
	return writeTable(w, []string{
		"A", "B", "A, " + unit.Name + "/s", "B, " + unit.Name + "/s", "A over B, median", "interval", "pairs",
	}, rows)
}

// WriteSweep writes candidates as a Markdown table, in the order given.
func WriteSweep(w io.Writer, unit Unit, measured []Measured) error {
	rows := [][]string{}
	for _, m := range measured {
		rows = append(rows, []string{
			m.Name, unit.rate(m.Median), unit.rate(slices.Min(m.Rates)), unit.rate(slices.Max(m.Rates)),
			strconv.Itoa(len(m.Rates)),
		})
	}
	return writeTable(w, []string{"candidate", "median, " + unit.Name + "/s", "least", "most", "visits"}, rows)
}

// writeTable aligns names left and numbers right.
func writeTable(w io.Writer, head []string, rows [][]string) error {
	rule := make([]string, len(head))
	for i := range head {
		rule[i] = "---:"
		if head[i] == "A" || head[i] == "B" || head[i] == "candidate" {
			rule[i] = "---"
		}
	}
	var text strings.Builder
	for _, row := range append([][]string{head, rule}, rows...) {
		for _, cell := range row {
			text.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		text.WriteString("|\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}
