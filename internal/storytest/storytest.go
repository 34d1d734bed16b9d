// Package storytest tells stories: files of commands, each with what comes of it, that are tests and documentation.
//
// In: a folder of stories, and the World that their commands are done in. Out: a test for each file, which fails where
// something else comes of a command than stands below it. Refused: a folder without stories. It knows no room.
//
// A story is a text that github.com/cockroachdb/datadriven reads: a comment that says what it teaches, and commands
// with their arguments and lines of input, a line "----", and the output up to an empty line.
// "go test PACKAGE -run TestStories -args -rewrite" writes the outputs anew; whoever does so reads the difference.
//
// # Rooms that have stories, and what these are of
//
//   - run/control: how processes agree on a step, a stop, a lost peer, a checkpoint, a rollback, a stall
//   - run: a stall, a loss that is no number, a worker that fails
//   - schedule: Programs, and what lowering adds
//   - schedule/check: each kind of refusal
//   - schedule/machine: who may start, and what the others wait for
//   - sim: links, cores, memory, stalls
//   - plan, cluster, data, launch: files and environments, and what these may not say
//   - trace: why workers wait
//   - report/picture: how Timelines are drawn
//   - wire/collective: who adds what up
//   - cmd/millrace, cmd/millrace-lab: what a user types, and sees
package storytest

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// World is what a story goes on in: it does a command and says what came of it. An error is an outcome too, told as
// "error: " and its text.
type World interface {
	Do(t *testing.T, d *datadriven.TestData) (string, error)
}

// WorldFunc is a World that keeps nothing from one command to the next.
type WorldFunc func(t *testing.T, d *datadriven.TestData) (string, error)

// Do implements World.
func (f WorldFunc) Do(t *testing.T, d *datadriven.TestData) (string, error) { return f(t, d) }

// Tell tells each story of a folder in a world of its own.
func Tell(t *testing.T, folder string, world func() World) {
	t.Helper()
	told := 0
	datadriven.Walk(t, folder, func(t *testing.T, path string) {
		told++
		w := world()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := w.Do(t, d)
			if err != nil {
				out += "error: " + err.Error()
			}
			if out != "" && !strings.HasSuffix(out, "\n") {
				out += "\n"
			}
			return out
		})
	})
	if told == 0 {
		t.Errorf("%s has no stories", folder)
	}
}
