package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/kind"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/trace"
)

// pageData is the data of the page's scripts. It has a list for each column, which takes less space than a list of
// objects.
type pageData struct {
	Predicted  []panel     `json:"predicted"` // steps that can be shown; the page opens with the first one
	Measured   []panel     `json:"measured"`
	Causes     []causeName `json:"causes"`
	Kinds      []kindName  `json:"kinds"`
	Losses     curve       `json:"losses"`
	LossMeans  *curve      `json:"loss_means,omitempty"` // means of losses, if there are more losses than are drawn
	EvalLosses curve       `json:"eval_losses"`
	Accuracies curve       `json:"accuracies"`
	// Reported holds the model's outputs besides its loss, by name.
	Reported    map[string]*curve `json:"reported,omitempty"`
	Apart       curve             `json:"reference_apart"`
	PeakBytes   [2][]int64        `json:"peak_bytes"` // peaks of the whole run: predicted, measured
	PeakTexts   []string          `json:"peak_texts"` // predicted and measured peaks as text, by worker
	StageLabels []string          `json:"stage_labels"`
	Groups      []group           `json:"groups"`          // workers by host, in the order of rows
	Resumed     []int             `json:"resumed"`         // StepNumbers of the first steps of later parts
	Steps       stepCurve         `json:"steps"`           // the steps' times
	Where       []string          `json:"where,omitempty"` // each worker's process and host, in a run of several processes
}

// group is the workers of a host; it has no title in a run with one process.
type group struct {
	Title   string `json:"title"`
	Workers []int  `json:"workers"`
}

type causeName struct {
	Name  trace.Cause `json:"name"`
	Label string      `json:"label"`
}

type kindName struct {
	Name  string `json:"name"`
	Label string `json:"label"`
}

type curve struct {
	X []int     `json:"x"` // StepNumbers
	Y []float64 `json:"y"`
}

// add adds the value of the step with this index.
func (c *curve) add(step int, y float64) {
	c.X, c.Y = append(c.X, trace.StepNumber(step)), append(c.Y, y)
}

// stepCurve holds the times of steps in nanoseconds, and the numbers that the page's tile of step times shows. The tile
// shows the mean or median over steps First to Last, and the predicted time.
type stepCurve struct {
	X           []int   `json:"x"` // StepNumbers; so are First and Last
	Y           []int64 `json:"y"`
	First       int     `json:"first"` // first of the steps that the tile's numbers cover
	Last        int     `json:"last"`
	MeasuredNS  int64   `json:"measured"`
	PredictedNS int64   `json:"predicted"` // 0: none
	MostNS      int64   `json:"most"`      // end of the axis
	Beyond      int     `json:"beyond"`    // number of steps that took longer than MostNS
	Text        string  `json:"text"`
	Predicted   string  `json:"predicted_text"`
}

// stepCurveOf returns the times of steps. It is empty for fewer than two steps, or if no step time is measured.
func (in Inputs) stepCurveOf() stepCurve {
	c := stepCurve{X: []int{}, Y: []int64{}}
	predicted, n := in.numbers()
	if n == nil || n.StepS == 0 || in.Measured != nil && len(in.Measured.Steps) < 2 {
		return c
	}
	took := map[int]float64{}
	for _, s := range in.Took {
		took[s.Step] = s.S
	}
	if in.Measured != nil {
		for k, s := range in.Measured.Took(0) {
			took[in.Measured.Steps[k].Step] = s
		}
	}
	if len(took) < 2 {
		return c
	}
	var all []point
	for _, step := range slices.Sorted(maps.Keys(took)) {
		all = append(all, point{trace.StepNumber(step), took[step]})
	}
	for _, p := range thinned(all, mostPoints, func(p point) float64 { return p.y }) {
		c.X, c.Y = append(c.X, p.x), append(c.Y, nanoseconds(p.y))
	}
	c.First, c.Last, c.MeasuredNS = n.First, n.Last, nanoseconds(n.StepS)
	c.Text = fmt.Sprintf("%s %s, steps %s to %s", n.average(), terminal.Duration(n.StepS), terminal.Whole(n.First),
		terminal.Whole(n.Last))
	if predicted != nil && predicted.StepS > 0 {
		c.PredictedNS = nanoseconds(predicted.StepS)
		c.Predicted = "predicted " + terminal.Duration(predicted.StepS)
	}
	// A few steps, mainly the first, take many times as long as the others. So the axis ignores the longest 2 % of the
	// times. It ends 15 % beyond the longest other time, or beyond the predicted time if that is longer.
	longest := slices.Sorted(maps.Values(took))
	c.MostNS = max(nanoseconds(longest[98*(len(longest)-1)/100]), c.PredictedNS) * 23 / 20
	for _, s := range longest {
		if nanoseconds(s) > c.MostNS {
			c.Beyond++
		}
	}
	return c
}

// kinds lists the kinds of instructions in the order of the legend: computations first.
var kinds = kindsInOrder()

func kindsInOrder() []string {
	var first, then []string
	for _, k := range kind.All() {
		if k.IsCompute() {
			first = append(first, k.String())
		} else {
			then = append(then, k.String())
		}
	}
	return append(first, then...)
}

func pageDataOf(in Inputs) pageData {
	d := pageData{Predicted: []panel{}, Measured: []panel{}}
	for _, c := range trace.Causes {
		d.Causes = append(d.Causes, causeName{c, c.Label()})
	}
	for _, k := range kinds {
		d.Kinds = append(d.Kinds, kindName{k, trace.Plain(k)})
	}
	if in.Simulated != nil {
		s, marked := in.predicted()
		d.Predicted = append(d.Predicted, in.panelOf(in.Simulated, s, marked))
	}
	if in.Measured != nil {
		d.Measured = in.measuredPanels()
	}
	predicted, measured := in.numbers()
	if predicted != nil {
		d.PeakBytes[0] = predicted.PeakBytes
	}
	if measured != nil {
		d.PeakBytes[1] = measured.PeakBytes
	}
	d.PeakTexts = peakTexts(predicted, measured, in.workers())
	d.drawLearning(in)
	d.Resumed = []int{}
	for _, first := range in.Resumed {
		d.Resumed = append(d.Resumed, trace.StepNumber(first))
	}
	d.Steps = in.stepCurveOf()
	d.labelWorkers(in)
	return d
}

// drawLearning fills in the curves of losses and evaluations. It leaves out values that are not finite.
func (d *pageData) drawLearning(in Inputs) {
	var losses []point
	for _, l := range in.Losses {
		if finite(l.Value) {
			losses = append(losses, point{trace.StepNumber(l.Step), l.Value})
		}
	}
	d.Losses, d.LossMeans = curveOf(losses), meansOf(losses)
	for _, c := range []*curve{&d.EvalLosses, &d.Accuracies, &d.Apart} {
		*c = curve{[]int{}, []float64{}}
	}
	for _, e := range in.Evaluations {
		if finite(e.Loss) {
			d.EvalLosses.add(e.Step, e.Loss)
			if e.Samples > 0 {
				d.Accuracies.add(e.Step, e.Accuracy())
			}
			if e.Apart != nil && finite(*e.Apart) {
				d.Apart.add(e.Step, *e.Apart)
			}
		}
		for name, v := range e.Reported {
			if v == nil {
				continue
			}
			if d.Reported == nil {
				d.Reported = map[string]*curve{}
			}
			if d.Reported[name] == nil {
				d.Reported[name] = &curve{}
			}
			d.Reported[name].add(e.Step, *v)
		}
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// labelWorkers fills in each worker's host, process and stages.
func (d *pageData) labelWorkers(in Inputs) {
	for _, h := range in.groups() {
		if g := (group{Workers: h.Workers}); len(h.Workers) > 0 {
			if len(h.Processes) > 0 {
				g.Title = h.title()
			}
			d.Groups = append(d.Groups, g)
		}
	}
	if t := in.Measured; hostsOf(t) != nil {
		for w := range t.Workers {
			d.Where = append(d.Where, t.Where(w))
		}
	}
	for w := range in.workers() {
		label := ""
		if stages := in.stagesOf(w); len(stages) > 0 {
			label = "stage " + list(stages)
		}
		d.StageLabels = append(d.StageLabels, label)
	}
}

// peakTexts says how much memory each worker held at its peak. An unknown side is left out.
func peakTexts(predicted, measured *Numbers, workers int) []string {
	texts := make([]string, workers)
	for w := range texts {
		var sides []string
		for _, side := range []struct {
			name string
			n    *Numbers
		}{{"predicted", predicted}, {"measured", measured}} {
			if side.n == nil {
				continue
			}
			if b, ok := entry(side.n.PeakBytes, w); ok {
				sides = append(sides, side.name+" "+UnitBytes.Format(b))
			}
		}
		if len(sides) > 0 {
			texts[w] = "peak: " + strings.Join(sides, ", ")
		}
	}
	return texts
}

// thinned reduces a list to at most `most` values, and keeps the highest and the lowest ones. It keeps the first and
// the last value. It divides the other values into equal parts, as many as fit, and keeps the lowest and the highest of
// each part, in their order.
func thinned[T any](all []T, most int, of func(T) float64) []T {
	if len(all) <= most {
		return all
	}
	last := len(all) - 1
	out := []T{all[0]}
	inner, parts := all[1:last], (most-2)/2
	for k := range parts {
		part := inner[k*len(inner)/parts : (k+1)*len(inner)/parts]
		low, high := 0, 0
		for i, v := range part {
			if of(v) < of(part[low]) {
				low = i
			}
			if of(v) > of(part[high]) {
				high = i
			}
		}
		out = append(out, part[min(low, high)])
		if low != high {
			out = append(out, part[max(low, high)])
		}
	}
	return append(out, all[last])
}

// mostPoints is the maximal number of points of a curve over steps, more than a screen's width.
const mostPoints = 4000

type point struct {
	x int
	y float64
}

// curveOf returns points as a page draws them, at most mostPoints.
func curveOf(all []point) curve {
	c := curve{[]int{}, []float64{}}
	for _, p := range thinned(all, mostPoints, func(p point) float64 { return p.y }) {
		c.X, c.Y = append(c.X, p.x), append(c.Y, p.y)
	}
	return c
}

// meansOf returns the trend of a curve that has so many points that curveOf reduces them. It divides the points into
// equal parts, and puts the mean of each at the part's middle. For fewer points it returns nil.
func meansOf(all []point) *curve {
	if len(all) <= mostPoints {
		return nil
	}
	var c curve
	for k := range mostPoints / 4 {
		part := all[k*len(all)/(mostPoints/4) : (k+1)*len(all)/(mostPoints/4)]
		mean := 0.0
		for _, p := range part {
			mean += p.y / float64(len(part))
		}
		c.X, c.Y = append(c.X, part[len(part)/2].x), append(c.Y, mean)
	}
	return &c
}
