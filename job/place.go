package job

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/registry"
)

// place says where a setting is.
type place struct {
	key  string // the setting's name in the flat form
	path string // the setting's place in the nested form
	at   []int  // index of the field in a Job
}

// places lists all settings, in the order of Job's groups.
var places = placesIn(reflect.TypeFor[Job](), "", nil)

// placesIn collects the settings of a group, which is a struct of this package. A struct of another package is a single
// setting, whose parts can be set separately.
func placesIn(group reflect.Type, within string, at []int) (all []place) {
	for i := range group.NumField() {
		f := group.Field(i)
		name := f.Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		own := append(at[:len(at):len(at)], i)
		if isGroup(f.Type) {
			all = append(all, placesIn(f.Type, within+name+".", own)...)
			continue
		}
		key := name
		if flat := f.Tag.Get("flat"); flat != "" {
			key = flat
		}
		all = append(all, place{key, within + name, own})
	}
	return all
}

func isGroup(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.PkgPath() == reflect.TypeFor[Job]().PkgPath()
}

// pathOf returns the path of a flat key in the nested form, such as train.rate.base for rate.base.
func pathOf(key string) string {
	first, rest, parts := strings.Cut(key, ".")
	for _, p := range places {
		if p.key == first && parts {
			return p.path + "." + rest
		}
		if p.key == first {
			return p.path
		}
	}
	return key
}

// keyOfPath is the inverse of pathOf. It returns "" if a path is a group or unknown.
func keyOfPath(path string) string {
	for _, p := range places {
		if p.path == path {
			return p.key
		}
		if rest, within := strings.CutPrefix(path, p.path+"."); within {
			return p.key + "." + rest
		}
	}
	return ""
}

// Suggest returns the path that a user probably meant by an unknown key; "" if none is similar. It also knows the flat
// form's keys and the names of flags.
func (j *Job) Suggest(key string) string {
	paths := map[string]string{}
	var names []string
	add := func(name, path string) {
		if _, known := paths[name]; !known {
			paths[name], names = path, append(names, name)
		}
	}
	for _, p := range places {
		add(p.key, p.path)
	}
	for _, option := range slices.Sorted(maps.Keys(keys)) {
		add(strings.ReplaceAll(option, "-", "_"), pathOf(keys[option]))
	}
	for _, p := range places {
		field := reflect.TypeFor[Job]().FieldByIndex(p.at)
		add(p.path[strings.LastIndex(p.path, ".")+1:], p.path)
		for i := 0; field.Type.Kind() == reflect.Struct && i < field.Type.NumField(); i++ {
			part := field.Type.Field(i).Tag.Get("yaml")
			add(part, p.path+"."+part)
		}
		for group := p.path; strings.Contains(group, "."); {
			group = group[:strings.LastIndex(group, ".")]
			add(group[strings.LastIndex(group, ".")+1:], group)
		}
	}
	asked := strings.ReplaceAll(key, "-", "_")
	if path, known := paths[asked]; known {
		return path
	}
	return paths[registry.Nearest(asked, names)]
}
