package job

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/strictyaml"
)

// Read reads a job file into j. Settings that the file does not mention stay as they are. Unknown keys are errors that
// quote the line.
func (j *Job) Read(path string) error {
	if ext := filepath.Ext(path); ext == ".mr" || ext == ".pt2" {
		return fmt.Errorf("job: %s: %s", path, isModel(path))
	}
	text, err := document.Read(path, strictyaml.MaxBytes)
	if err != nil {
		return fmt.Errorf("job: %w", err)
	}
	return j.ReadText(text, path)
}

// ReadText reads the text of a job file into j, as Read does. The file may be on another host; path is its name in
// errors.
func (j *Job) ReadText(text []byte, path string) error {
	if err := j.decode(text, path); err != nil {
		return fmt.Errorf("job: %s: %w", path, err)
	}
	return nil
}

// isModel returns the error text for a model file given as a job.
func isModel(path string) string { return "it is a model, not a job; give it with --model " + path }

// Settings returns the settings in the text of a job file, by key, for either form. Unknown keys are returned as
// written, and values are not checked, since the file may be from another version.
func Settings(text []byte) (map[string]any, error) {
	said := map[string]any{}
	if err := strictyaml.Decode(text, &said); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !isNested(said) {
		return said, nil
	}
	return flattened("", said, map[string]any{}), nil
}

// decode reads a text into j, as Read does. file is the text's file, or "" if it has none.
func (j *Job) decode(text []byte, file string) error {
	var said map[string]any
	err := strictyaml.Decode(text, &said)
	if errors.Is(err, io.EOF) {
		return nil // an empty file sets nothing
	}
	if err != nil {
		return err
	}
	if _, layers := said["layers"].([]any); layers {
		return errors.New(isModel(cmp.Or(file, "FILE")))
	}
	if _, levels := said["levels"].([]any); levels {
		return errors.New("it is a cluster, not a job; give it with --cluster " + cmp.Or(file, "FILE"))
	}
	if !isNested(said) {
		if err := j.decodeFlat(text); err != nil {
			return err
		}
		j.giveAll("", file, false, said)
		return nil
	}
	if err := oneForm(text, said); err != nil {
		return err
	}
	if err := strictyaml.Decode(text, j); err != nil {
		return err
	}
	j.giveAll("", file, true, flattened("", said, map[string]any{}))
	return nil
}

// These are the forms of a key of the outermost mapping.
const (
	unknown = iota
	flat    // a setting
	nested  // a group of settings
)

// formOf returns the form of a key of the outermost mapping. The keys model, data and plan exist in both forms. Such a
// key is nested if its value is a mapping, unknown if it has no value, and flat otherwise.
func formOf(key string, value any) int {
	setting, group := keyOfPath(pathOf(key)) == key, false
	for _, p := range places {
		group = group || strings.HasPrefix(p.path, key+".")
	}
	_, isMap := value.(map[string]any)
	switch {
	case group && (isMap || !setting):
		return nested
	case setting && (value != nil || !group):
		return flat
	}
	return unknown
}

// isNested reports whether a text has a group, or no setting at all. A text of unknown keys alone counts as nested, so
// that the error suggests names of groups for them.
func isNested(said map[string]any) bool {
	settings := false
	for key, value := range said {
		switch formOf(key, value) {
		case nested:
			return true
		case flat:
			settings = true
		}
	}
	return !settings
}

// oneForm refuses a text that mixes groups and flat settings.
func oneForm(text []byte, said map[string]any) error {
	keys := strictyaml.Keys(text)
	for _, k := range keys {
		if formOf(k.Name, said[k.Name]) != flat {
			continue
		}
		for _, group := range keys {
			if formOf(group.Name, said[group.Name]) != nested {
				continue
			}
			return k.Refuse(fmt.Sprintf("%s is of the flat form of a job file, and %s in line %d of the nested one; "+
				"give it as %s", k.Name, group.Name, group.Line, pathOf(k.Name)))
		}
	}
	return nil
}

// decodeFlat reads a text in the flat form into j, through a struct that has all settings on one level.
func (j *Job) decodeFlat(text []byte) error {
	own := reflect.ValueOf(j).Elem()
	fields := make([]reflect.StructField, len(places))
	for i, p := range places {
		fields[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: own.FieldByIndex(p.at).Type(),
			Tag: reflect.StructTag(fmt.Sprintf("yaml:%q", p.key))}
	}
	beside := reflect.New(reflect.StructOf(fields))
	for i, p := range places {
		beside.Elem().Field(i).Set(own.FieldByIndex(p.at))
	}
	if err := strictyaml.Decode(text, beside.Interface()); err != nil {
		return err
	}
	for i, p := range places {
		own.FieldByIndex(p.at).Set(beside.Elem().Field(i))
	}
	return nil
}

// flattened puts the settings of groups on one level. Unknown keys keep their paths.
func flattened(within string, said, into map[string]any) map[string]any {
	for name, value := range said {
		path := within + name
		below, isMap := value.(map[string]any)
		switch key := keyOfPath(path); {
		case key != "":
			into[key] = value
		case isMap:
			flattened(path+".", below, into)
		default:
			into[path] = value
		}
	}
	return into
}
