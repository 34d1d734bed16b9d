package planning

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/tune/shape"
)

// plan --explain shows the time lost to contention, and its share of the step. If nothing is lost, the line is left
// out.
func TestExplainNamesContention(t *testing.T) {
	for lost, want := range map[float64]bool{0.5: true, 0: false} {
		var out bytes.Buffer
		best := &shape.Prediction{StepS: 2, Parts: shape.Parts{KernelsS: 2 - lost, ContentionS: lost}}
		if err := explained(&out, terminal.Of(&out), best, nil, "", "", ""); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(out.String()), " ")
		line := "contention of messages and sums of gradients at the ports that they share 500 ms 25.0 %"
		if strings.Contains(text, line) != want || strings.Contains(text, "contention") != want {
			t.Errorf("%v s lost: %s", lost, text)
		}
	}
}
