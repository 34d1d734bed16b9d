package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// property is the description of one key in a JSON schema.
type property struct {
	Type        any // a word, or a list of words
	Description string
	Properties  json.RawMessage
	Items       *property
}

// settings returns the tables of a JSON schema, one for each group of properties.
func (r reader) settings(file string) (string, error) {
	text, err := os.ReadFile(filepath.Join(r.dir, filepath.FromSlash(file)))
	if err != nil {
		return "", err
	}
	var whole property
	if err := json.Unmarshal(text, &whole); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	var b strings.Builder
	err = inOrder(whole.Properties, func(group string, p property) error {
		fmt.Fprintf(&b, "`%s`: %s\n\n| setting | type | meaning |\n|---|---|---|\n", group, p.Description)
		if err := rows(&b, "", p.Properties); err != nil {
			return err
		}
		b.WriteString("\n")
		return nil
	})
	if err == nil && b.Len() == 0 {
		err = fmt.Errorf("%s has no properties", file)
	}
	return strings.TrimSuffix(b.String(), "\n\n"), err
}

// rows writes a row for each property with a description. The name of a nested property begins with that of its group.
func rows(b *strings.Builder, within string, properties json.RawMessage) error {
	return inOrder(properties, func(name string, p property) error {
		if p.Description != "" {
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", within+name, p.kind(), cell(p.Description))
		}
		return rows(b, within+name+".", p.Properties)
	})
}

// kind returns a property's type in words.
func (p property) kind() string {
	words, several := p.Type.([]any)
	if several && p.Items != nil {
		return "list of " + p.Items.kind()
	}
	if several {
		return fmt.Sprint(words[len(words)-1])
	}
	return strings.Replace(fmt.Sprint(p.Type), "boolean", "bool", 1)
}

// inOrder calls a function for the members of a JSON object in their order.
func inOrder(object json.RawMessage, do func(name string, p property) error) error {
	if len(object) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var p property
		if err := d.Decode(&p); err != nil {
			return err
		}
		if err := do(fmt.Sprint(name), p); err != nil {
			return err
		}
	}
	return nil
}
