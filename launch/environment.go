package launch

import (
	"fmt"
	"strconv"
	"strings"
)

// environment is the variables of a process.
type environment map[string]string

// newEnvironment reads lines NAME=value. Of a name that is there twice the first counts, as for getenv. A
// variable without a value counts as not set.
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

// first is the value of the first variable that is set.
func (env environment) first(names ...string) string {
	for _, name := range names {
		if value, ok := env[name]; ok {
			return value
		}
	}
	return ""
}

// shown is how errors show a variable: RANK=3, or RANK not set.
func (env environment) shown(name string) string {
	value, ok := env[name]
	if !ok {
		return name + " is not set"
	}
	return name + "=" + clipped(value)
}

// longest is what errors show of a value.
const longest = 64

// clipped is a value that fits a line, in quotes where it is no plain word.
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

// number is the value of a variable, a whole number from least to most.
func (env environment) number(name string, least, most int) (int, error) {
	value := env[name]
	n, err := strconv.Atoi(value)
	if err != nil || strings.HasPrefix(value, "+") || n < least || n > most {
		return 0, fmt.Errorf("%s; it is a whole number from %d to %d", env.shown(name), least, most)
	}
	return n, nil
}

// optional is number, or otherwise where the variable is not set.
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

// must is the value of a variable that has to be set.
func (n *numbers) must(name string, least, most int) int {
	return n.keep(func() (int, error) { return n.env.number(name, least, most) })
}

// may is the value of a variable, or otherwise.
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

// together refuses a set of variables that is incomplete.
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
