package job

import (
	"encoding/json"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema returns the JSON schema of a job file in the nested form.
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

// describe adds the descriptions of settings and groups to a schema.
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
