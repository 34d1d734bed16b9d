// Package storytest runs stories: files of commands with their expected output, which are both tests and
// documentation.
//
// Input: a folder of stories, and the World that runs their commands. Output: a test for each file, which fails if a
// command's output differs from the text below it. A folder without stories is refused. The package uses no other
// package of millrace.
//
// A story is a text in the format of github.com/cockroachdb/datadriven. It has a comment that says what it teaches,
// and commands. Each command has arguments and lines of input, a line "----", and the output up to an empty line.
// "go test PACKAGE -run TestStories -args -rewrite" rewrites the outputs; always read the difference.
//
// # Rooms that have stories, and their subjects
//
//   - run/control: how processes agree on a step, a stop, a lost peer, a checkpoint, a rollback, a stall
//   - run: a stall, a loss that is no number, a worker that fails
//   - schedule: Programs, and the instructions that lowering adds
//   - schedule/check: each kind of refusal
//   - schedule/machine: which workers may start an instruction, and what the others wait for
//   - sim: links, cores, memory, stalls
//   - plan, cluster, data, launch: files and environments, and which of them are refused
//   - trace: why workers wait
//   - report/picture: how Timelines are drawn
//   - wire/collective: which member adds which elements
//   - cmd/millrace, cmd/millrace-lab: what a user types, and sees
package storytest

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// World runs the commands of a story and returns their output. An error is an output too: "error: " and its text.
type World interface {
	Do(t *testing.T, d *datadriven.TestData) (string, error)
}

// WorldFunc is a World without state between commands.
type WorldFunc func(t *testing.T, d *datadriven.TestData) (string, error)

// Do implements World.
func (f WorldFunc) Do(t *testing.T, d *datadriven.TestData) (string, error) { return f(t, d) }

// Tell runs each story of a folder in a new world.
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
