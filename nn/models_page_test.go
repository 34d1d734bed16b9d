package nn

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model"
)

// entry returns the text that docs/models.md should have for a kind of layer or a built-in model.
func entry(name, doc string, settings []model.Setting, example string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s.\n", name, doc)
	if example != "" {
		fmt.Fprintf(&b, "\n    %s\n", example)
	}
	for i, s := range settings {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "- `%s` (%s; %s): %s\n", s.Name, s.Takes(), s.Usual(), s.Doc)
	}
	return b.String()
}

// TestTheModelsPageIsComplete: docs/models.md lists every kind of layer and every built-in model with all settings. For
// each kind it says whether it can be trained.
func TestTheModelsPageIsComplete(t *testing.T) {
	text, err := os.ReadFile("../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	trained, described, _ := strings.Cut(page, "\n## Layers that are planned and not trained\n")
	for _, k := range model.Kinds() {
		part := described
		if _, err := makers.Find(k.Name); err == nil {
			part = trained
		}
		if want := entry(k.Name, k.Doc, k.Settings, k.YAML()); !strings.Contains(part, "\n"+want) {
			t.Errorf("docs/models.md lacks in its part:\n%s", want)
		}
	}
	for _, f := range model.Families() {
		if !slices.Contains([]string{"mlp", "convnet", "gpt", "lstm", "llama"}, f.Name) {
			if !strings.Contains(page, "`"+f.Name+"`") {
				t.Errorf("docs/models.md does not name the model %s", f.Name)
			}
			continue
		}
		if want := entry(f.Name, f.Doc, f.Settings, ""); !strings.Contains(page, "\n"+want) {
			t.Errorf("docs/models.md lacks:\n%s", want)
		}
	}
}
