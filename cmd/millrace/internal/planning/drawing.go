package planning

import (
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report/picture"
	"github.com/millrace-ml/millrace/trace"
)

// drawing draws a plan's step, or the first minibatches of a stream. It draws boxes if they fit on the screen and show
// the idle time, else letters.
func (v *view) drawing(t *trace.Timeline) {
	_, end := t.Extent()
	frame := picture.Frame{Screen: v.Screen, Clock: picture.ClockFor(end), ToS: end}
	d := picture.Boxes(t, frame)
	hides := v.Plan.Predicted.Bubble > leastIdle && !strings.Contains(d.Text(4*mostRows), picture.Idle)
	if hides || !d.Whole() { // boxes of a few cells cannot show idle time
		d = picture.Letters(t, frame)
	}
	what := "the step, by itself"
	if n := len(t.Steps); n > 1 {
		what = "the first " + terminal.Count(n, "minibatch")
	}
	why := ""
	if q := v.Plan.Predicted; len(t.Steps) == 1 && end > 1.005*q.StepS {
		why = fmt.Sprintf(" (%s predicted: in a row steps overlap their neighbours)", terminal.Duration(q.StepS))
	} else if len(t.Steps) == 1 && end < .995*q.StepS && v.OneRun() {
		why = fmt.Sprintf(" (%s predicted: in a row steps wait for their neighbours too)", terminal.Duration(q.StepS))
	} else if len(t.Steps) == 1 && end < .995*q.StepS {
		why = fmt.Sprintf(" (%s predicted: a mean over runs in each of which another worker is slow, as the profile found "+
			"them; here none is)", terminal.Duration(q.StepS))
	}
	fmt.Fprintf(v.to, "\n%s%s%s", v.Wrap("", "", fmt.Sprintf("%s, %s%s:", what, terminal.Duration(end), why)),
		d.Text(4*mostRows), d.Legend())
}
