package job

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace-ml/millrace/internal/document"
)

// Write writes the job to a file in the nested form. Reading the file into Default() restores the job. Settings equal
// to Default's are written too, unless they are 0, empty or Auto, so that two files can be compared.
func (j *Job) Write(path string) error {
	text, err := textOf(groups(j.besides(Job{})))
	if err != nil {
		return err
	}
	return document.WriteText(path, text)
}

// Text returns the job as text for Parse. It contains what [Job.Complete] filled in, so that a process that reads the
// text has every setting of the job. It refuses text that is not UTF-8, which a file cannot hold.
func (j *Job) Text() (string, error) { return textOf(groups(j.Keys())) }

func textOf(keys map[string]any) (string, error) {
	text, err := json.MarshalIndent(keys, "", "  ") // JSON is also YAML
	if err != nil {
		return "", fmt.Errorf("job: %w", err)
	}
	if bad := firstOther(keys); bad != "" {
		return "", fmt.Errorf("job: %q is no UTF-8 text, and another process cannot be told it; give it another name", bad)
	}
	return string(text) + "\n", nil
}

// Parse returns the complete job of a text that Text wrote.
func Parse(text string) (*Job, error) {
	j := Default()
	if err := j.decode([]byte(text), ""); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	return &j, j.Complete()
}

// Keys returns the settings that were given or differ from Default, by key. Parts of a setting, such as those of the
// rate, are nested in it.
func (j *Job) Keys() map[string]any { return j.besides(Default()) }

// besides returns the settings that were given or differ from another job's.
func (j *Job) besides(other Job) map[string]any {
	keys := map[string]any{}
	own, usual := reflect.ValueOf(*j), reflect.ValueOf(other)
	for _, p := range places {
		j.said(p.key, own.FieldByIndex(p.at), usual.FieldByIndex(p.at), p.key, keys)
	}
	return keys
}

// said adds a value to `keys`, under `name`, if the key was given. Otherwise it adds the value only if the value
// differs from `usual` and is not Auto. It adds a struct part by part.
func (j *Job) said(key string, value, usual reflect.Value, name string, keys map[string]any) {
	if value.Kind() == reflect.Struct {
		parts := map[string]any{}
		for i := range value.NumField() {
			part := value.Type().Field(i).Tag.Get("yaml")
			j.said(key+"."+part, value.Field(i), usual.Field(i), part, parts)
		}
		if len(parts) > 0 {
			keys[name] = parts
		}
		return
	}
	if j.Given(key) || !reflect.DeepEqual(value.Interface(), usual.Interface()) && !isAuto(value) {
		keys[name] = value.Interface()
	}
}

// groups puts settings by key into their groups.
func groups(keys map[string]any) map[string]any {
	all := map[string]any{}
	for key, value := range keys {
		path := strings.Split(pathOf(key), ".")
		group := all
		for _, name := range path[:len(path)-1] {
			below, is := group[name].(map[string]any)
			if !is {
				below = map[string]any{}
				group[name] = below
			}
			group = below
		}
		group[path[len(path)-1]] = value
	}
	return all
}

// isAuto reports whether a number is Auto, so that millrace chooses it.
func isAuto(v reflect.Value) bool {
	return v.CanInt() && v.Int() == Auto || v.CanFloat() && v.Float() == Auto
}

// firstOther returns the first text that is not UTF-8 among names and values, or "".
func firstOther(keys map[string]any) string {
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		texts := []string{name}
		switch value := keys[name].(type) {
		case string:
			texts = append(texts, value)
		case []string:
			texts = append(texts, value...)
		case map[string]any:
			texts = append(texts, firstOther(value))
		case []any:
			texts = append(texts, fmt.Sprint(value...))
		}
		for _, text := range texts {
			if !utf8.ValidString(text) {
				return strings.TrimSpace(text)
			}
		}
	}
	return ""
}
