package imported_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model/imported"
)

const page = "../../docs/pytorch.md"

// Networks in other people's styles either agree with PyTorch or are refused. A network that agrees has PyTorch's loss
// and gradients, and gives the same bits wherever it is cut. A refusal says what to change. The list in the
// documentation shows the result of each network.
func TestStylesAreWhatThePageSays(t *testing.T) {
	var table strings.Builder
	through := 0
	for _, a := range exported(t, torchtest.Styles()...) {
		what := ""
		t.Run(a.Name, func(t *testing.T) {
			if what = outcome(t, a); !strings.HasPrefix(what, "refused") {
				through++
			}
		})
		table.WriteString(wrapped(fmt.Sprintf("- `%s`: %s. **%s**", a.Name, strings.TrimSuffix(a.Doc, "."), what)))
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n\n"+table.String()+"\n") {
		t.Errorf("%s has another list than this, with %d that go through:\n%s", page, through, table.String())
	}
}

// wrapped returns a list's entry in lines of at most 120 columns.
func wrapped(entry string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(entry) {
		n := utf8.RuneCountInString(word)
		switch {
		case i > 0 && column+1+n > 120:
			b.WriteString("\n  ")
			column = 2
		case i > 0:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String() + "\n"
}

// inFiles matches the path in a message, which differs in each run.
var inFiles = regexp.MustCompile(`^(millrace_export|import|aten): (/\S*: )?(graph.json: )?`)

func refusal(said string) string {
	return inFiles.ReplaceAllString(strings.TrimSpace(said), "")
}

// outcome runs a network with every possible cut, and describes the result.
func outcome(t *testing.T, a torchtest.Answer) string {
	if a.Code != 0 {
		return "refused by the exporter: " + refusal(a.Said)
	}
	n, err := imported.Open(a.Model, imported.Options{Fuse: imported.Off})
	if err != nil {
		return "refused by `import`: " + refusal(err.Error())
	}
	m := n.Model
	what := fmt.Sprintf("%d layers", len(m.Layers))
	if a.Said != "" {
		what += "; " + strings.TrimSpace(a.Said)
	}
	if !a.Oracle {
		return what + "; its dropout is drawn by millrace and not compared"
	}
	want := torchtest.Read(t, a.Numbers)
	dev := device(t)
	compare(t, dev, m, want, "b", 1e-6, 0)
	loss, whole := compare(t, dev, m, want, "a", 1e-6, 0)
	for cut := 1; cut < len(m.Layers); cut++ {
		l := newLine(t, dev, m, 0, cut)
		got, found := l.step(want, "a")
		l.close()
		if got != loss {
			t.Errorf("cut in front of %s: a loss of %v instead of %v", m.Layers[cut].Name, got, loss)
		}
		for name, x := range found { // except parameters whose gradient is spread over both stages
			if !bytes.Equal(x, whole[name]) {
				t.Errorf("cut in front of %s: %s has other bits", m.Layers[cut].Name, name)
			}
		}
	}
	fusedToo(t, a, want)
	return what
}
