package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/internal/crash"
)

// baseOf holds a correct command line for each verb. A key is the verb's whole name, such as "model show", or the last
// word of it. The test runs each command line with a context that has ended, so that the command does no work.
var baseOf = map[string]string{
	"profile": "mlp --analytic --cluster dapple-b:2 --batch 8",
	"plan":    "--model mlp --cluster dapple-b:2 --batch 8", "schedule": "1f1b",
	"launch": "", "compare": "", "simulate": "--model mlp --cluster dapple-b:2 --batch 8",
	"tune":  "--model mlp --cluster dapple-b:2 --batch 8",
	"train": "--model mlp --data digits --batch 8 --steps 2 --dry-run", "report": "nowhere",
	"measure":  "nowhere.yaml --sizes 4",
	"manifest": "mpirun --model mlp --data digits --batch 8",
	"import":   "nowhere --from piper --batch 8", "export": "--to deepspeed --plan nowhere",
	"calibrate": "dgx-a100 nowhere.csv", "show": "nowhere.npz", "model show": "mlp",
}

// inWords has the words with which messages name a flag, if they do not use its own name.
var inWords = map[string]string{
	"lr": "learning rate", "lr-schedule": "learning-rate schedule", "lr-warmup": "warm-up steps", "lr-scale": "rate_scale",
	"weight-decay": "weight decay", "warmup": "warm-up depths", "resume": "checkpoint", "wire": "cluster",
	"weights": "weight policy", "cores-per-process": "cores", "workers-per-process": "workers",
}

// elsewhere lists errors with which a verb of baseOf may end before it checks the tested flag.
var elsewhere = []string{"native library", "no such file", "context canceled", "PyTorch does not load",
	"give the verb to start"}

// Each verb gets negative, huge and non-finite numbers for its flags. With such a number it may succeed, be stopped, or
// fail for a reason in `elsewhere`. In all other cases it must refuse the number with exit code 2 and the flag's name.
func TestNumbersOutOfRange(t *testing.T) {
	for name, native := range map[string]string{"with libtorch": "",
		"without": filepath.Join(t.TempDir(), "no-library.so")} {
		t.Run(name, func(t *testing.T) {
			only := ""
			if native == "" {
				clitest.NeedTorch(t)
				native, _ = torch.Find()
				only = "train"
			}
			t.Setenv("MILLRACE_NATIVE", native)
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			t.Chdir(t.TempDir())
			everyVerb(command(), nil, func(c *cobra.Command, path []string) {
				if only != "" && only != path[len(path)-1] {
					return
				}
				c.Flags().VisitAll(func(f *pflag.Flag) {
					if kind := f.Value.Type(); kind == "bool" || strings.HasPrefix(kind, "string") {
						return
					}
					for _, value := range strings.Split("-1 0 9223372036854775807 2147483648 1e308 NaN -Inf  "+
						"99999999999999999999", " ") {
						tryNumber(t, path, f.Name, value)
					}
				})
			})
		})
	}
}

// everyVerb visits the verbs below c that can be run.
func everyVerb(c *cobra.Command, path []string, visit func(c *cobra.Command, path []string)) {
	if c.RunE != nil && len(path) > 0 {
		visit(c, path)
	}
	for _, verb := range c.Commands() {
		everyVerb(verb, append(path[:len(path):len(path)], verb.Name()), visit)
	}
}

// tryNumber runs a verb with a value of a flag, in a context that has ended.
func tryNumber(t *testing.T, path []string, flag, value string) {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	stop(&cli.Stopped{})
	base := cmp.Or(baseOf[strings.Join(path, " ")], baseOf[path[len(path)-1]])
	args := append(append(path[:len(path):len(path)], strings.Fields(base)...), "--"+flag+"="+value)
	root := command()
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	root.SetArgs(args)
	err := crash.Guard(func() error { return root.ExecuteContext(ctx) })
	var exit *cli.ExitError
	var by *cli.Stopped
	switch line := strings.Join(args, " "); {
	case cli.AsPanic(err) != nil:
		t.Errorf("%s: %v\n%s", line, err, cli.AsPanic(err).Stack)
	case err == nil || errors.As(err, &by) || slices.ContainsFunc(elsewhere,
		func(why string) bool { return strings.Contains(err.Error(), why) }):
	case !errors.As(err, &exit) || exit.Code != cli.ExitBadInput:
		t.Errorf("%s: not exit code 2: %v", line, err)
	case !strings.Contains(strings.ReplaceAll(err.Error(), "_", "-"), flag) &&
		!strings.Contains(err.Error(), cmp.Or(inWords[flag], flag)):
		t.Errorf("%s: it does not name the flag: %v", line, err)
	}
}
