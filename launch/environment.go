package launch

import (
	"fmt"
	"strconv"
	"strings"
)

// environment maps the names of a process's variables to their values.
type environment map[string]string

// newEnvironment reads lines NAME=value. If a name occurs twice, the first line counts, as with getenv. A variable
// with an empty value counts as not set.
func newEnvironment(lines []string) environment {
	env := environment{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, "=")
		if _, twice := env[name]; ok && !twice {
			env[name] = value
		}
	}
	for name, value := range env {
		if value == "" {
			delete(env, name)
		}
	}
	return env
}

// has says whether any of the variables is set.
func (env environment) has(names ...string) bool {
	for _, name := range names {
		if _, ok := env[name]; ok {
			return true
		}
	}
	return false
}

// first returns the value of the first of the variables that is set.
func (env environment) first(names ...string) string {
	for _, name := range names {
		if value, ok := env[name]; ok {
			return value
		}
	}
	return ""
}

// shown returns a variable as errors show it: RANK=3, or "RANK is not set".
func (env environment) shown(name string) string {
	value, ok := env[name]
	if !ok {
		return name + " is not set"
	}
	return name + "=" + clipped(value)
}

// longest is how many bytes of a value errors show.
const longest = 64

// clipped shortens a value to fit a line, and quotes it unless it is a plain word.
func clipped(value string) string {
	if len(value) > longest {
		value = value[:longest] + "..."
	}
	for _, c := range []byte(value) {
		if c <= ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return strconv.Quote(value)
		}
	}
	return value
}

// number returns the value of a variable, which must be a whole number from `least` to `most`.
func (env environment) number(name string, least, most int) (int, error) {
	value := env[name]
	n, err := strconv.Atoi(value)
	if err != nil || strings.HasPrefix(value, "+") || n < least || n > most {
		return 0, fmt.Errorf("%s; it is a whole number from %d to %d", env.shown(name), least, most)
	}
	return n, nil
}

// optional is like number, but returns `otherwise` if the variable is not set.
func (env environment) optional(name string, least, most, otherwise int) (int, error) {
	if !env.has(name) {
		return otherwise, nil
	}
	return env.number(name, least, most)
}

// numbers reads several variables, and stops at the first that is wrong.
type numbers struct {
	env environment
	err error
}

// must returns the value of a variable that has to be set.
func (n *numbers) must(name string, least, most int) int {
	return n.keep(func() (int, error) { return n.env.number(name, least, most) })
}

// may returns the value of a variable, or `otherwise` if the variable is not set.
func (n *numbers) may(name string, least, most, otherwise int) int {
	return n.keep(func() (int, error) { return n.env.optional(name, least, most, otherwise) })
}

func (n *numbers) keep(read func() (int, error)) int {
	if n.err != nil {
		return 0
	}
	var value int
	value, n.err = read()
	return value
}

// together refuses an incomplete set of variables.
func (env environment) together(names ...string) error {
	for _, name := range names {
		if !env.has(name) {
			var there []string
			for _, other := range names {
				if env.has(other) {
					there = append(there, env.shown(other))
				}
			}
			return fmt.Errorf("%s, but %s is not set", strings.Join(there, ", "), name)
		}
	}
	return nil
}
