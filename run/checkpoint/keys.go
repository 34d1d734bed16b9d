package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// checkKeys returns an error for misspelt and for duplicate keys. Package json accepts "Steps" for "steps", and uses
// the last of two values of one key.
func checkKeys(text []byte, m *Manifest) error {
	known, err := m.encode()
	if err != nil {
		return err
	}
	theirs, err := readTree(json.NewDecoder(bytes.NewReader(text)))
	if err != nil {
		return err
	}
	ours, err := readTree(json.NewDecoder(bytes.NewReader(known)))
	if err != nil {
		return err
	}
	return within(theirs, ours, "")
}

// tree is the structure of a JSON value: keys of objects and elements of lists, without scalars.
type tree struct {
	keys  map[string]tree
	items []tree
}

// readTree reads the next value.
func readTree(dec *json.Decoder) (tree, error) {
	token, err := dec.Token()
	if err != nil {
		return tree{}, err
	}
	t := tree{}
	switch token {
	case json.Delim('{'):
		t.keys = map[string]tree{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return t, err
			}
			name, _ := key.(string)
			if _, twice := t.keys[name]; twice {
				return t, fmt.Errorf("key %q stands twice", name)
			}
			if t.keys[name], err = readTree(dec); err != nil {
				return t, err
			}
		}
		_, err = dec.Token()
	case json.Delim('['):
		for dec.More() {
			item, err := readTree(dec)
			if err != nil {
				return t, err
			}
			t.items = append(t.items, item)
		}
		_, err = dec.Token()
	}
	return t, err
}

// within returns an error if the tree `theirs` has a key that the tree `ours` lacks in the same place.
func within(theirs, ours tree, path string) error {
	for name, value := range theirs.keys {
		known, ok := ours.keys[name]
		if !ok {
			return fmt.Errorf("key %q is none that a manifest has there", path+name)
		}
		if err := within(value, known, path+name+"."); err != nil {
			return err
		}
	}
	for i := range min(len(theirs.items), len(ours.items)) {
		if err := within(theirs.items[i], ours.items[i], fmt.Sprintf("%s%d.", path, i)); err != nil {
			return err
		}
	}
	return nil
}
