package job

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/millrace-ml/millrace/stage/optim"
)

// givens records which settings were given, by key, and the name under which each was given.
type givens struct {
	called map[string]string // such as "--lr", or "train.rate.base in job.yaml"; empty if the name is the key itself
	nested bool              // a nested file gave settings, so missing settings are named by their paths
}

// Given reports whether a key, such as batch or rate.base, was given any value.
func (g *givens) Given(key string) bool {
	_, given := g.called[key]
	return given
}

// Give notes that a key is given.
func (g *givens) Give(key string) { g.giveAs(key, "") }

// TakeBack notes that keys are no longer given. The caller must have set their values to zero.
func (g *givens) TakeBack(keys ...string) {
	for _, key := range keys {
		delete(g.called, key)
	}
}

// giveAs notes that a key is given by a flag or a file, under the name `called`.
func (g *givens) giveAs(key, called string) {
	if g.called == nil {
		g.called = map[string]string{}
	}
	if called != "" || !g.Given(key) {
		g.called[key] = called
	}
}

// giveAll notes the settings of a file. `within` is the prefix of their keys. A key without a value is not given.
// Settings of a nested file are named by their paths.
func (g *givens) giveAll(within, file string, nested bool, settings map[string]any) {
	g.nested = g.nested || nested && file != ""
	for name, value := range settings {
		key := within + name
		switch below, isMap := value.(map[string]any); {
		case isMap && key != "settings":
			g.giveAll(key+".", file, nested, below)
		case value != nil && file == "":
			g.giveAs(key, "")
		case value != nil && nested:
			g.giveAs(key, pathOf(key)+" in "+file)
		case value != nil:
			g.giveAs(key, key+" in "+file)
		}
	}
}

// Called returns the name under which messages mention a key. It is the flag that gave the key, or the key's name in
// the job file, followed by the name of the file. A key that was not given has the name that it would have in the job
// file.
func (g *givens) Called(key string) string {
	if called := g.called[key]; called != "" {
		return called
	}
	if g.nested && !g.Given(key) {
		return pathOf(key)
	}
	return key
}

// wrong refuses a key's value and says what would be right.
func (g *givens) wrong(key string, value any, right string) error {
	if word, is := value.(string); is {
		value = strconv.Quote(word)
	}
	return fmt.Errorf("%s is %v; give %s", g.Called(key), value, right)
}

// inField prefixes an error of package optim with the name under which the refused setting was given.
func (g *givens) inField(within string, err error) error {
	var field *optim.FieldError
	if errors.As(err, &field) {
		return fmt.Errorf("%s %w", g.Called(within+"."+field.Field), field.Err)
	}
	return err
}
