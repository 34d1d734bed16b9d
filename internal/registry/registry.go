// Package registry holds what a room offers by name: kinds of layers, planners,
// schedules, experiments. In go values, from init functions; out come all of them by
// name, or one. Refused: names nobody registered, with the one that is meant (Nearest), or the list of those that there
// are; None is that error for names of any other list.
// A name taken twice is a bug and panics.
package registry

import (
	"maps"
	"slices"
)

// Registry is a set of named values of one sort. Adding is for init functions: it is
// not safe beside other calls.
type Registry[T any] struct {
	sort   string
	byName map[string]T
}

// New makes an empty registry of values of a sort, "planner" for instance.
func New[T any](sort string) *Registry[T] {
	return &Registry[T]{sort, map[string]T{}}
}

// Add takes a name.
func (r *Registry[T]) Add(name string, v T) {
	if _, taken := r.byName[name]; taken {
		panic(r.sort + " " + name + " is registered twice")
	}
	r.byName[name] = v
}

// Remove gives a name back.
func (r *Registry[T]) Remove(name string) { delete(r.byName, name) }

// Names is all names, sorted.
func (r *Registry[T]) Names() []string { return slices.Sorted(maps.Keys(r.byName)) }

// All is all values, by name.
func (r *Registry[T]) All() []T {
	all := make([]T, 0, len(r.byName))
	for _, name := range r.Names() {
		all = append(all, r.byName[name])
	}
	return all
}

// Find is the value of a name, or an error with the names that there are.
func (r *Registry[T]) Find(name string) (T, error) {
	v, ok := r.byName[name]
	if !ok {
		return v, None(r.sort, name, r.Names())
	}
	return v, nil
}
