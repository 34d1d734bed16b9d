package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/cmd/internal/words"
)

// verbsOf calls f for a program's verbs, at any depth.
func verbsOf(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, verb := range c.Commands() {
		verbsOf(verb, f)
	}
}

// Every flag has a word that describes its value, and every word is used by some verb.
func TestEveryFlagHasAWord(t *testing.T) {
	takes, used := map[string]string{}, map[string]bool{}
	for _, g := range words.Groups() {
		for _, w := range g.Words {
			if _, twice := takes[w.Name]; twice {
				t.Errorf("--%s stands in two groups", w.Name)
			}
			takes[w.Name] = w.Takes
		}
	}
	verbsOf(command(), func(c *cobra.Command) {
		if c.Hidden { // users do not type this verb
			return
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden { // an old name
				return
			}
			used[f.Name] = true
			of, ok := takes[f.Name]
			switch {
			case !ok:
				t.Errorf("%s --%s has no word in cmd/internal/words", c.CommandPath(), f.Name)
			case f.Value.Type() != "bool" && (of == "" || of != strings.ToUpper(of)):
				t.Errorf("%s --%s takes %q; a word in capitals says what", c.CommandPath(), f.Name, of)
			}
		})
	})
	for name := range takes {
		if !used[name] {
			t.Errorf("no verb has the word %s", name)
		}
	}
}

// Old names of flags are still accepted, with the same meaning as the new ones, and are never shown.
func TestOldNamesAreTaken(t *testing.T) {
	for _, c := range []struct{ verb, old, now string }{
		{"train", "output", "out"}, {"tune", "output", "out"}, {"tune", "report", "html"}, {"tune", "train", "steps"},
		{"tune", "memory", "memory-limit"}, {"tune", "pipelines", "most-pipelines"},
		{"launch", "token-file", "run-token-file"}, {"manifest", "output", "manifest"}, {"plan", "output", "out"},
		{"checkpoint export", "output", "out"},
		{"checkpoint export", "optimizer", "optimizer-state"}, {"profile", "output", "out"}, {"import", "output", "out"},
	} {
		verb, rest, err := command().Find(strings.Fields(c.verb))
		if err != nil || len(rest) > 0 {
			t.Fatalf("%s: %v, %q", c.verb, err, rest)
		}
		if f := verb.Flags().Lookup(c.old); f == nil || f.Name != c.now {
			t.Errorf("%s --%s is %+v, want --%s", c.verb, c.old, f, c.now)
		}
		if strings.Contains(verb.UsageString(), "--"+c.old+" ") {
			t.Errorf("%s shows --%s", c.verb, c.old)
		}
	}
}

// completed returns what a shell is offered after some words. The last word is being typed.
func completed(t *testing.T, line ...string) []string {
	t.Helper()
	root := command()
	var out, log bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&log)
	root.SetArgs(append([]string{"__complete"}, line...))
	if err := root.Execute(); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	var all []string
	for text := range strings.Lines(out.String()) {
		if text = strings.TrimSuffix(text, "\n"); !strings.HasPrefix(text, ":") {
			value, _, _ := strings.Cut(text, "\t")
			all = append(all, value)
		}
	}
	return all
}

// Values of flags and arguments are completed: names, files of the right kind, and names from inside files.
func TestValuesAreCompleted(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"mine.yaml", "net.pt2", "net.mr", "notes.txt", "rows.csv", "plan.json",
		"runs/gpt/checkpoints/step-00000020/manifest.json", "runs/gpt/checkpoints/step-00000040/manifest.json",
		"runs/gpt/metrics.jsonl", "images/train.gz"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("{}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := &clitest.Program{Dir: ".", Native: "none", Cache: t.TempDir()}
	if out := p.Run(t, strings.Fields("plan --model mlp --cluster dapple-a --batch 32 -o of-mlp.json"), true); out != "" {
		t.Fatal(out)
	}
	for _, c := range []struct {
		line string // the last word, possibly empty, is being typed
		want string
		no   string
	}{
		{"train --model ", "gpt llama mlp bert-48 mine.yaml net.pt2 net.mr runs/", "notes.txt rows.csv"},
		{"train --model=co", "convnet", "gpt"},
		{"model show ll", "llama", "gpt"},
		{"model show gpt ", "", "gpt llama"},
		{"model kinds conv", "conv2d", "dense"},
		{"profile re", "resnet50", "gpt"},
		{"plan --schedule z", "zb-h1 zb-h2 zb-v zb-auto", "1f1b"},
		{"schedule zb-h", "zb-h1 zb-h2", "1f1b"},
		{"schedule compare --only 1f1b,zb-h", "1f1b,zb-h1 1f1b,zb-h2", "1f1b,1f1b"},
		{"train --weights ", "sync stash vertical 2bw latest elastic", ""},
		{"plan --cluster dapple-", "dapple-a dapple-b dapple-c", "avgpipe"},
		{"plan --cluster m", "mine.yaml", "avgpipe"},
		{"cluster show ", "avgpipe dgx-h100 mine.yaml runs/", "notes.txt"},
		{"calibrate ", "avgpipe dgx-h100 mine.yaml runs/", "notes.txt rows.csv"},
		{"calibrate mine.yaml ", "rows.csv plan.json runs/", "mine.yaml avgpipe notes.txt"},
		{"calibrate mine.yaml rows.csv --fit matmul.limit,la", "matmul.limit,launch matmul.limit,layer", "matmul.limit"},
		{"train --wire pipe", "pipedream-a pipedream-b pipedream-c", "avgpipe"},
		{"train --data ", "digits fashion-mnist notes.txt rows.csv images/", "mine.yaml net.pt2"},
		{"data show di", "digits", "fashion-mnist"},
		{"export --to ", "torch-csv split-points megatron deepspeed", "pipedream"},
		{"import --from p", "pt2 pipedream piper", "torch"},
		{"train --optimizer a", "adam adamw", "sgd"},
		{"train --tokenizer ", "gpt2 r50k p50k cl100k o200k", ""},
		{"plan --planner ", "auto avgpipe bapipe dapple pipedream", ""},
		{"plan --model gpt --set layers=2 --split block1.", "block1.attention block1.mlp", "block2.mlp embed head"},
		{"plan --model gpt --split block1.mlp,he", "block1.mlp,head", ""},
		{"train --model mlp --freeze ", "dense0 dense0.weight *.bias head", "embed"},
		{"train --plan of-mlp.json --freeze ", "dense0.weight", "embed"},
		{"train --model gpt --set ", "layers= width= activation=gelu_tanh tied=", "hidden="},
		{"plan --planner pipedream --set over", "overlap=", "layers="},
		{"train --resume runs/g", "runs/gpt", ""},
		{"train --resume runs/gpt", "runs/gpt runs/gpt/checkpoints/step-00000020 runs/gpt/checkpoints/step-00000040", ""},
		{"checkpoint show runs/gpt/", "runs/gpt/checkpoints/step-00000040", ""},
		{"checkpoint ls ", "runs/ images/", "plan.json"},
		{"report runs/", "runs/gpt", ""},
		{"train --collectives ", "ordered native", ""},
		{"train --log ", "human json", ""},
		{"manifest ", "slurm mpirun k8s jobset trainjob", "mine.yaml"},
		{"help ", "train plan model", "measure all"},
		{"help train ", "all", ""},
		{"help schedule ", "compare ls all", ""},
		{"train --bind ", "always never", ""},
		{"train --recompute ", "auto none stage", ""},
		{"tune --memory 1GiB --cluster dgx", "dgx-h100 dgx-h200", ""},
	} {
		got := completed(t, strings.Split(c.line, " ")...)
		for want := range strings.FieldsSeq(c.want) {
			if !slices.Contains(got, strings.Replace(want, "train --model=", "", 1)) {
				t.Errorf("%q offers %q, without %s", c.line, got, want)
			}
		}
		for no := range strings.FieldsSeq(c.no) {
			if slices.Contains(got, no) {
				t.Errorf("%q offers %s", c.line, no)
			}
		}
	}
	// The shell completes files with these endings.
	for line, want := range map[string]string{"simulate --plan": "json", "plan --job": "yaml", "schedule --svg": "svg",
		"train --program": "txt"} {
		if got := completed(t, append(strings.Split(line, " "), "")...); !slices.Contains(got, want) {
			t.Errorf("%s takes files that end in %q, want %s among them", line, got, want)
		}
	}
}

// Every flag with a value has a completion that never fails, whatever is typed.
func TestEveryFlagAnswersAShell(t *testing.T) {
	t.Chdir(t.TempDir())
	asked := map[string]bool{} // flags tried so far: a name has the same completion in every verb
	verbsOf(command(), func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" || len(path) == 0 || asked[f.Name] {
				return
			}
			asked[f.Name] = true
			for _, typed := range []string{"", "a,b"} {
				for _, of := range completed(t, append(slices.Clone(path), "--"+f.Name, typed)...) {
					if strings.Contains(of, "rror") {
						t.Errorf("%s --%s %s offers %q", c.CommandPath(), f.Name, typed, of)
					}
				}
			}
		})
	})
}
