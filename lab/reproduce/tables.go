package reproduce

import (
	"embed"
	"fmt"

	"github.com/millrace-ml/millrace/internal/strictyaml"
)

// What the papers print: numbers only, each file with its origin.
//
//go:embed tables/*.yaml
var tableFiles embed.FS

// read decodes one of the papers' tables.
func read(name string, v any) error {
	text, err := tableFiles.ReadFile("tables/" + name + ".yaml")
	if err == nil {
		err = strictyaml.Decode(text, v)
	}
	if err != nil {
		return fmt.Errorf("tables/%s.yaml: %w", name, err)
	}
	return nil
}
