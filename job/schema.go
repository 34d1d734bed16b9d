package job

import (
	"encoding/json"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema is the JSON schema of a job file in the nested form.
func Schema() ([]byte, error) {
	s, err := jsonschema.For[Job](nil)
	if err != nil {
		return nil, fmt.Errorf("job: schema: %w", err)
	}
	s.Title = "millrace job"
	describe(s, "")
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

// describe has a schema say what its settings and groups are.
func describe(s *jsonschema.Schema, within string) {
	for name, property := range s.Properties {
		path := within + name
		if property.Description = says[keyOfPath(path)]; property.Description != "" {
			continue
		}
		if property.Description = groupsSay[path]; property.Description != "" {
			describe(property, path+".")
		}
	}
}
