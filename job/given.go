package job

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/millrace-ml/millrace/stage/optim"
)

// givens is which settings somebody has set, by key, and what each is called where that was.
type givens struct {
	called map[string]string // --lr, or train.rate.base in job.yaml; empty where it is the key
	nested bool              // by a file of groups, in which a setting that is missing would be called by its path
}

// Given says whether somebody has set a key, such as batch or rate.base, to whatever value.
func (g *givens) Given(key string) bool {
	_, given := g.called[key]
	return given
}

// Give notes that a key is set.
func (g *givens) Give(key string) { g.giveAs(key, "") }

// TakeBack notes that keys are not set, whose values are zero again.
func (g *givens) TakeBack(keys ...string) {
	for _, key := range keys {
		delete(g.called, key)
	}
}

// giveAs notes that a key is set by a flag or a file, where it is called so.
func (g *givens) giveAs(key, called string) {
	if g.called == nil {
		g.called = map[string]string{}
	}
	if called != "" || !g.Given(key) {
		g.called[key] = called
	}
}

// giveAll notes the settings of a file, keys within another; one without a value is not set. A nested file's are
// called by their paths.
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

// Called is a key as whoever has set it knows it: by the flag, or as it stands in the job file and which. A key that
// nobody has set is called as it would be in that file.
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

// inField names the setting that optim refuses as the job's user has given it.
func (g *givens) inField(within string, err error) error {
	var field *optim.FieldError
	if errors.As(err, &field) {
		return fmt.Errorf("%s %w", g.Called(within+"."+field.Field), field.Err)
	}
	return err
}
