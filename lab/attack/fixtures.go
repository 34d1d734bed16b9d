package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// small has the flags of the attacks' default training: an mlp in two stages, with a profile that was measured once.
const small = "--profile @mlp.json --batch 8 --stages 2 --split 1 --micro-batches 2 --eval-rows 8"

// fixtureCommands make the valid files that invalid ones are derived from. The folder of fixtures also has the files of
// testdata/fixtures.
var fixtureCommands = []string{
	"profile --model mlp --sizes 1,2,4,8 --batch 8 --passes 1 -o mlp.json",
	"profile --model mlp --set inputs=3 --set hidden=4 --set classes=3 --batch 4 --sizes 4 --passes 1 -o table.json",
	"train --model mlp --data digits @P --schedule 1f1b --steps 4 --save-every 2 --out run",
	"plan --model mlp --profile mlp.json --batch 8 --stages 2 --split head --micro-batches 2 --schedule 1f1b -o plan.json",
	"plan --model gpt --cluster cluster.yaml --batch 8 --stages 2 --schedule 1f1b --micro-batches 4 -o gpt-plan.json",
	"profile --model gpt --analytic --cluster cluster.yaml --batch 8 -o gpt.json",
	"schedule 1f1b --stages 2 --micro-batches 3 --text",
	"export --to torch-csv --plan plan.json -o schedule.csv",
}

// prepare makes the fixtures.
func (a *attack) prepare(ctx context.Context) error {
	a.fixtures = filepath.Join(a.scratch, "fixtures")
	from, err := fs.Sub(testdata, "testdata/fixtures")
	if err != nil {
		return err
	}
	if err := os.CopyFS(a.fixtures, from); err != nil {
		return err
	}
	for _, line := range fixtureCommands {
		c := command{dir: a.fixtures, home: filepath.Join(a.scratch, "home"), args: a.words(strings.Fields(line))}
		e, err := a.run(ctx, c)
		if err != nil {
			return err
		}
		if e.code != 0 {
			return fmt.Errorf("millrace %s ends with %d, so that there is nothing to attack:\n%s", line, e.code, e.err)
		}
		if name := printed[strings.Fields(line)[1]]; name != "" {
			if err := os.WriteFile(filepath.Join(a.fixtures, name), e.out, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// printed maps a command's first argument to the fixture that its stdout becomes.
var printed = map[string]string{"1f1b": "program.txt"}

// words replaces @P and the names of fixtures in a command.
func (a *attack) words(args []string) []string {
	var out []string
	for _, w := range args {
		switch name, fixture := strings.CutPrefix(w, "@"); {
		case w == "@P":
			out = append(out, a.words(strings.Fields(small))...)
		case fixture:
			out = append(out, filepath.Join(a.fixtures, name))
		default:
			out = append(out, w)
		}
	}
	return out
}
