package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A verb that takes a plan recognises a run's folder by the plan in it, and suggests --plan with that file.
func TestTheFolderOfARunIsItsPlan(t *testing.T) {
	dir := t.TempDir()
	verb := &cobra.Command{Use: "simulate"}
	verb.Flags().String("plan", "", "")
	verb.Flags().String("model", "", "")
	says := func(word string) string { return wrongArguments(verb, []string{word}).Error() }
	if got := says(dir); !strings.Contains(got, "a model is named with --model "+dir) {
		t.Errorf("a folder without a plan: %s", got)
	}
	verb.Flags().String("job", "", "")
	job := filepath.Join(dir, "gpt.yaml")
	if err := os.WriteFile(job, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	want := "a job file is given with --job " + job + ", a model's file with --model " + job
	if got := says(job); !strings.Contains(got, want) {
		t.Errorf("%s: %s; want %s", job, got, want)
	}
	plan := filepath.Join(dir, "plan.json")
	if err := os.WriteFile(plan, []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{dir, plan} {
		if got := says(word); !strings.Contains(got, "a plan is given with --plan "+plan) {
			t.Errorf("%s: %s", word, got)
		}
	}
}

// A wrong argument is refused as bad input. The error names the argument and what would be right.
func TestWrongArguments(t *testing.T) {
	program := func() *cobra.Command {
		verb := func(use, example string, args cobra.PositionalArgs) *cobra.Command {
			return &cobra.Command{Use: use, Example: example, Args: args,
				RunE: func(*cobra.Command, []string) error { return nil }}
		}
		plan := verb("plan", "  program plan --model gpt", cobra.NoArgs)
		plan.Flags().String("model", "", "")
		plan.Flags().Int("workers", 0, "")
		cluster := verb("cluster", "  program cluster ls", cobra.NoArgs)
		cluster.AddCommand(verb("ls", "  program cluster ls", cobra.NoArgs),
			verb("show CLUSTER", "  program cluster show a", cobra.ExactArgs(1)))
		plans := []Group{{Name: "Plan", Words: []Word{{Name: "model", Takes: "MODEL"}}}}
		own := func(*cobra.Command, []string) error { return BadInput(errors.New("its own")) }
		return NewRoot(&cobra.Command{Use: "program"}, plans,
			plan, cluster, verb("report RUN", "  program report runs/gpt\n  program report -h", cobra.ExactArgs(1)),
			verb("join [NAME=]FILE [NAME=]FILE ...", "  program join a b", cobra.MinimumNArgs(2)),
			verb("schedule [NAME | FILE]", "  program schedule zb-v", cobra.MaximumNArgs(1)),
			verb("live -- TRAIN FLAGS...", "  program live -- --model mlp", cobra.MinimumNArgs(1)),
			verb("kind KIND", "  program kind slurm", own))
	}
	for typed, want := range map[string]string{
		"report":     "report: RUN is missing; give it, as in: program report runs/gpt",
		"report a b": `report: "b" is too many: it takes no more than RUN; see program report -h`,
		"plan gpt": `plan: "gpt" is too many: it takes no argument; a model is named with --model gpt; ` +
			"see program plan -h",
		"plan --modle gpt":     "there is no flag --modle; did you mean --model? see program plan -h",
		"plan --work 2":        "there is no flag --work; did you mean --workers? see program plan -h",
		"plan --nonsense":      "there is no flag --nonsense; see program plan -h",
		"plan --num-workers":   "there is no flag --num-workers; there is --workers; see program plan -h",
		"plan -x":              "there is no flag -x; see program plan -h",
		"plan --model":         "--model has no value: give MODEL; see program plan -h",
		"plan --workers two":   `--workers is "two"; give a whole number; see program plan -h`,
		"cluster shwo":         `cluster: there is no verb "shwo"; did you mean "program cluster show"?`,
		"cluster nonsense":     `cluster: there is no verb "nonsense"; there are ls, show`,
		"cluster ls x":         `cluster ls: "x" is too many: it takes no argument; see program cluster ls -h`,
		"cluster show":         "cluster show: CLUSTER is missing; give it, as in: program cluster show a",
		"join a":               "join: [NAME=]FILE is missing; give it, as in: program join a b",
		"schedule a b":         `schedule: "b" is too many: it takes no more than [NAME | FILE]; see program schedule -h`,
		"live":                 "live: TRAIN is missing; give it, as in: program live -- --model mlp",
		"live --model mlp":     "there is no flag --model before --; behind it stands TRAIN FLAGS...; see program live -h",
		"kind":                 "its own",
		"reprot --of x":        `there is no verb "reprot"; did you mean "program report"?`,
		"reprot x":             `there is no verb "reprot"; did you mean "program report"?`,
		"nonsense":             `there is no verb "nonsense"; see program -h`,
		"help nonsense":        `there is no verb "nonsense"; see program -h`,
		"help cluster nothing": `cluster: there is no verb "nothing"; there are ls, show`,
		"completion bash x":    `completion: "x" is too many: it takes no more than SHELL; see program completion -h`,
		"completion":           "completion: SHELL is missing; give it, as in: source <(program completion bash)",
		"join a b c d":         "",
		"cluster":              "",
	} {
		root := program()
		root.SetArgs(strings.Fields(typed))
		root.SetOut(&strings.Builder{})
		err := root.Execute()
		switch {
		case err == nil && want == "":
		case err == nil:
			t.Errorf("%s is taken; want %q", typed, want)
		case err.Error() != want || CodeOf(err) != ExitBadInput:
			t.Errorf("%s: %q, exit %d; want %q", typed, err, CodeOf(err), want)
		}
	}
}
