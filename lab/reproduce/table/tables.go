package table

import (
	"embed"
	"fmt"

	"github.com/millrace-ml/millrace/internal/strictyaml"
)

// Read decodes a table of a paper from its YAML file.
func Read(files embed.FS, name string, v any) error {
	text, err := files.ReadFile("tables/" + name + ".yaml")
	if err == nil {
		err = strictyaml.Decode(text, v)
	}
	if err != nil {
		return fmt.Errorf("tables/%s.yaml: %w", name, err)
	}
	return nil
}

// Rows reads a paper's table that consists only of rows, and sets the Table's source.
func Rows[R any](files embed.FS, name string, t *Table) ([]R, error) {
	var paper struct {
		Source string `yaml:"source"`
		Rows   []R    `yaml:"rows"`
	}
	err := Read(files, name, &paper)
	t.Source = paper.Source
	return paper.Rows, err
}
