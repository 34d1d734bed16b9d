package schedule_test

import (
	"os"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/kind"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// The page docs/programs.md lists every kind of instruction, with a star at those that count minibatches. Its examples
// pass Check.
func TestTheProgramsPageIsComplete(t *testing.T) {
	text, err := os.ReadFile("../docs/programs.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	listed := map[string]bool{}
	for line := range strings.Lines(page) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for name := range strings.SplitSeq(cells[1], ",") {
				listed[strings.TrimSpace(name)] = true
			}
		}
	}
	for _, k := range kind.All() {
		name := k.String()
		if k.OfMinibatch() {
			name += "*"
		}
		if !listed[name] {
			t.Errorf("docs/programs.md does not say what %s is", name)
		}
	}
	examples := strings.Split(page, "\n    "+schedule.TextHeader+"\n")[1:]
	minibatches := []int{1, 6} // the numbers on the page
	if len(examples) != len(minibatches) {
		t.Fatalf("the page has %d examples; want %d", len(examples), len(minibatches))
	}
	for i, example := range examples {
		example, _, _ = strings.Cut(example, "\n\n")
		p, err := schedule.ParseText(strings.NewReader(schedule.TextHeader + "\n" + example))
		if err == nil {
			p, err = lower.Lower(p, lower.Options{})
		}
		if err == nil {
			_, err = check.Check(p)
		}
		if err != nil {
			t.Errorf("example %d: %v", i, err)
		} else if n := p.Minibatches(); n != minibatches[i] {
			t.Errorf("example %d trains %d minibatches; want %d", i, n, minibatches[i])
		}
	}
}
