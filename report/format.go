package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
)

// Format formats a number for people: "812 ms", "118 MiB", "7.4 %".
func (u Unit) Format(x float64) string {
	switch u {
	case UnitSeconds:
		return terminal.Duration(x)
	case UnitBytes:
		return terminal.Bytes(x)
	case UnitPart:
		return fmt.Sprintf("%.1f %%", 100*x)
	case UnitMicroBatch:
		return strconv.FormatFloat(x, 'f', -1, 64)
	case UnitPerSecond:
		return terminal.Number(x, 4) // the same digits as in explanations of plans
	}
	switch {
	case x >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 9.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// text formats one side of a comparison. An unknown side is a dash.
func (c *Comparison) text(x *float64) string {
	if x == nil {
		return "–"
	}
	return c.Unit.Format(*x)
}

// differenceText formats the difference: "+1.4 %", "+0.6 points", "exact".
func (c *Comparison) differenceText() string {
	switch {
	case c.Difference == nil:
		return "–"
	case c.Unit == UnitMicroBatch && *c.Difference == 0:
		return "exact"
	case c.Unit == UnitPart:
		return signed(shownPercent(*c.Measured)-shownPercent(*c.Predicted)) + " points"
	}
	return signed(100**c.Difference) + " %"
}

// shownPercent returns a fraction in percent, rounded as it is shown, so that a difference matches the numbers on
// the page.
func shownPercent(part float64) float64 { return math.Round(1000*part) / 10 }

// signed formats a number with one decimal and its sign: "+1.4", "−0.6", "±0.0".
func signed(x float64) string {
	s := fmt.Sprintf("%.1f", max(x, -x))
	switch {
	case s == "0.0":
		return "±" + s
	case x < 0:
		return "−" + s
	}
	return "+" + s
}

// A difference of at most nearPart is rated as near, and a larger one of at most fairPart as fair. Both are relative to
// the prediction. For a value that is itself a fraction, nearPoints and fairPoints limit the difference of the two
// fractions.
const (
	nearPart, fairPart     = .05, .15
	nearPoints, fairPoints = .02, .05
)

// off rates a difference: 0 is near, 1 is fair and 2 is beyond fair. For a count, any difference is rated 2. An unknown
// difference is 0.
func (c *Comparison) off() int {
	if c.Difference == nil {
		return 0
	}
	d := max(*c.Difference, -*c.Difference)
	near, fair := nearPart, fairPart
	switch c.Unit {
	case UnitPart:
		near, fair = nearPoints, fairPoints
	case UnitMicroBatch:
		near, fair = 0, 0
	}
	switch {
	case d <= near:
		return 0
	case d <= fair:
		return 1
	}
	return 2
}

// Meaning explains the colour of a difference.
type Meaning struct {
	Off    int    `json:"off"` // the rating in Card.Off
	Colour string `json:"colour"`
	Text   string `json:"text"`
}

// Meanings explains the colours of differences, the best first.
func Meanings() []Meaning {
	within := func(part, points float64) string {
		return fmt.Sprintf("within %.0f %% of the prediction (a bubble: %.0f points)", 100*part, 100*points)
	}
	return []Meaning{
		{0, "green", within(nearPart, nearPoints)},
		{1, "amber", within(fairPart, fairPoints)},
		{2, "red", "further off, or a count that differs"},
	}
}

// label returns the name of a comparison's row.
func (c *Comparison) label() string {
	if c.Worker < 0 {
		return c.Name
	}
	return fmt.Sprintf("worker %d %s", c.Worker, c.Name)
}

// printable replaces characters of a name from a file that might otherwise change the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// clip shortens s to at most n runes. If n is above 1, the last rune of a shortened text is an ellipsis.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	if n <= 1 {
		return string(r[:max(n, 0)])
	}
	return string(r[:n-1]) + "…"
}

// span formats a range of numbers: "3" or "0–7".
func span(first, last int) string {
	if first == last {
		return strconv.Itoa(first)
	}
	return fmt.Sprintf("%d–%d", first, last)
}

// layersOf formats the layers of a stage, and its parts of a divided layer.
func layersOf(s *plan.Stage) string {
	text := span(s.FirstLayer, s.LastLayer)
	if parts := s.Parts(); parts != "" {
		text += " (" + parts + ")"
	}
	return text
}

// list formats numbers, with runs of consecutive numbers joined: "0–3, 7".
func list(xs []int) string {
	var parts []string
	for i := 0; i < len(xs); {
		j := i
		for j+1 < len(xs) && xs[j+1] == xs[j]+1 {
			j++
		}
		parts = append(parts, span(xs[i], xs[j]))
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

// Percent formats a fraction: "7.4 %".
func Percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

// ShortPlan describes a plan in a cell of a table.
func ShortPlan(pl *plan.Plan) string {
	if len(pl.Stages) == 1 {
		return fmt.Sprintf("%s, %d x %d", terminal.Count(len(pl.Stages[0].Devices), "worker"), pl.MicroBatches, pl.MicroBatch)
	}
	var cuts []string
	again := ""
	for _, s := range pl.Stages[1:] {
		cuts = append(cuts, fmt.Sprint(s.FirstLayer))
	}
	if pl.Stages[0].Recompute.Again() {
		again = ", recompute " + pl.Stages[0].Recompute.String()
	}
	return fmt.Sprintf("%s, cut at %s, %d x %d%s", pl.Schedule, strings.Join(cuts, " "), pl.MicroBatches, pl.MicroBatch,
		again)
}
