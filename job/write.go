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

// Write writes the job as a file that Read takes over Default. Settings that are Default's stand there too, so that
// two files can be compared.
func (j *Job) Write(path string) error {
	text, err := textOf(j.besides(Job{}))
	if err != nil {
		return err
	}
	return document.WriteText(path, text)
}

// Text is the job as Parse reads it. What [Job.Complete] filled in is given there, so that a process that reads it has
// every setting of this one. It refuses text that is no UTF-8, which no file can hold.
func (j *Job) Text() (string, error) { return textOf(j.Keys()) }

func textOf(keys map[string]any) (string, error) {
	text, err := json.MarshalIndent(keys, "", "  ") // which is YAML
	if err != nil {
		return "", fmt.Errorf("job: %w", err)
	}
	if bad := firstOther(keys); bad != "" {
		return "", fmt.Errorf("job: %q is no UTF-8 text, and another process cannot be told it; give it another name", bad)
	}
	return string(text) + "\n", nil
}

// Parse is the complete job that a text says, as Text writes it.
func Parse(text string) (*Job, error) {
	j := Default()
	if err := j.decode([]byte(text), ""); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	return &j, j.Complete()
}

// Keys are the settings of a job file that are given, or differ from Default.
func (j *Job) Keys() map[string]any { return j.besides(Default()) }

// besides is the settings that are given, or differ from another job's.
func (j *Job) besides(other Job) map[string]any {
	keys := map[string]any{}
	j.said("", reflect.ValueOf(*j), reflect.ValueOf(other), keys)
	return keys
}

// said collects the keys in which a value differs from another, or that somebody has given.
func (j *Job) said(within string, value, usual reflect.Value, keys map[string]any) {
	for i := range value.NumField() {
		name := value.Type().Field(i).Tag.Get("yaml")
		if name == "" {
			continue // not a key of the file
		}
		own, other := value.Field(i), usual.Field(i)
		if own.Kind() == reflect.Struct {
			below := map[string]any{}
			j.said(within+name+".", own, other, below)
			if len(below) > 0 {
				keys[name] = below
			}
			continue
		}
		if j.Given(within+name) || !reflect.DeepEqual(own.Interface(), other.Interface()) && !isAuto(own) {
			keys[name] = own.Interface()
		}
	}
}

// isAuto says whether a number is left to millrace.
func isAuto(v reflect.Value) bool {
	return v.CanInt() && v.Int() == Auto || v.CanFloat() && v.Float() == Auto
}

// firstOther is a text among values that is no UTF-8; empty where all are.
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
