// Package registry holds values by name: kinds of layers, planners, schedules, experiments. Input: values, from init
// functions. Output: one value by name, or all. For an unknown name the error suggests the nearest name (Nearest) or
// lists all names. None makes the same kind of error for the names of any other list. A name registered twice is a bug
// and panics.
package registry

import (
	"maps"
	"slices"
)

// Registry is a set of named values of one sort. Add is for init functions only: it is not safe for concurrent use.
type Registry[T any] struct {
	sort   string
	byName map[string]T
}

// New returns an empty registry for a sort of values, for instance "planner".
func New[T any](sort string) *Registry[T] {
	return &Registry[T]{sort, map[string]T{}}
}

// Add registers a value under a name.
func (r *Registry[T]) Add(name string, v T) {
	if _, taken := r.byName[name]; taken {
		panic(r.sort + " " + name + " is registered twice")
	}
	r.byName[name] = v
}

// Remove removes a name.
func (r *Registry[T]) Remove(name string) { delete(r.byName, name) }

// Names returns all names, sorted.
func (r *Registry[T]) Names() []string { return slices.Sorted(maps.Keys(r.byName)) }

// All returns all values in the order of their names.
func (r *Registry[T]) All() []T {
	all := make([]T, 0, len(r.byName))
	for _, name := range r.Names() {
		all = append(all, r.byName[name])
	}
	return all
}

// Find returns the value of a name. The error for an unknown name suggests or lists known names.
func (r *Registry[T]) Find(name string) (T, error) {
	v, ok := r.byName[name]
	if !ok {
		return v, None(r.sort, name, r.Names())
	}
	return v, nil
}
