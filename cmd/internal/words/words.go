// Package words is the vocabulary of the programs' flags: what each name means in every verb.
//
// In: nothing; the flags of verbs are looked up here by name. Out: Groups for help, and completions of arguments. A
// group has a heading and words; a word has the name of its value, whether it is rare, and its completion in a
// shell. Refused: nothing. A completion that finds nothing, or cannot read its files, offers nothing. A test fails
// if a flag of a visible verb has no word here. One name means one thing; a flag with another meaning needs another
// name.
package words

import (
	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/data/tokens"
	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model/aten/rules"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/stage/optim"
)

// Groups returns all words in the order of help: headings, and the words below them, the most used first.
func Groups() []cli.Group {
	return []cli.Group{
		{Name: "Model", Words: []cli.Word{
			{Name: "model", Takes: "MODEL", Values: Models},
			{Name: "set", Takes: "NAME=VALUE", Values: settings},
			{Name: "freeze", Takes: "PATTERNS", Rare: true, Values: patterns},
			{Name: "init", Takes: "PATH", Rare: true, Values: namesAndFiles(nil, ".safetensors", ".json")},
		}},
		{Name: "Data", Words: []cli.Word{
			{Name: "data", Takes: "DATA", Values: Data},
			{Name: "tokenizer", Takes: "NAME", Rare: true, Values: One(tokens.Names()...)},
			{Name: "train-part", Takes: "PART", Rare: true},
			{Name: "rows", Takes: "PART", Values: One("train", "test")},
			{Name: "seed", Takes: "N"},
		}},
		{Name: "Machine", Words: []cli.Word{
			{Name: "workers", Takes: "N"},
			{Name: "cluster", Takes: "CLUSTER", Values: Clusters},
			{Name: "memory-limit", Takes: "SIZE"},
			{Name: "thorough", Rare: true},
			{Name: "cores", Takes: "N", Rare: true},
			{Name: "threads-per-worker", Takes: "N", Rare: true},
			{Name: "workers-per-process", Takes: "N", Rare: true},
			{Name: "precision", Takes: "FORMAT", Rare: true, Values: One(cluster.Precisions...)},
			{Name: "tensor", Takes: "N", Rare: true},
			{Name: "sequence-parallel", Rare: true},
			{Name: "wire", Takes: "CLUSTER", Rare: true, Values: Clusters},
			{Name: "bind", Takes: "WHEN", Rare: true, Values: One(job.BindAlways, job.BindNever)},
			{Name: "collectives", Takes: "NAME", Rare: true, Values: One(job.Ordered, job.Native)},
			{Name: "build"}, {Name: "links"},
		}},
		{Name: "Plan", Words: []cli.Word{
			{Name: "batch", Takes: "N"},
			{Name: "stages", Takes: "N"},
			{Name: "schedule", Takes: "NAME", Values: Schedules},
			{Name: "micro-batches", Takes: "N", Rare: true},
			{Name: "micro-batch", Takes: "N", Rare: true},
			{Name: "plan", Takes: "FILE", Rare: true, Values: files("json")},
			{Name: "split", Takes: "LAYERS", Rare: true, Values: layers},
			{Name: "weights", Takes: "POLICY", Rare: true, Values: policies},
			{Name: "staleness", Takes: "N", Rare: true},
			{Name: "boundary", Takes: "FORMAT", Rare: true, Values: One(packing.Names...)},
			{Name: "recompute", Takes: "HOW", Rare: true, Values: One("auto", "none", "stage", "every:2", "every:4", "blocks",
				"selective")},
			{Name: "shard", Takes: "WHAT", Rare: true, Values: One(plan.Shards...)},
			{Name: "gradients", Takes: "WHEN", Rare: true, Values: One("overlapped", "behind", "bucket=25MB")},
			{Name: "profile", Takes: "FILE", Rare: true, Values: files("json")},
			{Name: "program", Takes: "FILE", Rare: true, Values: files("txt", "json", "csv")},
			{Name: "any-order", Rare: true},
			{Name: "pipelines", Takes: "N", Rare: true},
			{Name: "advance", Takes: "N", Rare: true, Values: One(job.AutoAdvance, job.PrintedAdvance)},
			{Name: "alpha", Takes: "PART", Rare: true},
			{Name: "averaging", Takes: "ORDER", Rare: true,
				Values: One(string(plan.DiluteFirst), string(plan.UpdateFirst))},
			{Name: "reference", Takes: "WHERE", Rare: true, Values: One(string(plan.Inline), string(plan.Beside))},
			{Name: "batch-norm", Takes: "HOW", Rare: true, Values: One(job.PerSlice)},
			{Name: "post-validate", Rare: true},
			{Name: "warmup", Takes: "N,N,...", Rare: true},
			{Name: "chunks", Takes: "N", Rare: true},
			{Name: "replicas", Takes: "N,N,...", Rare: true},
			{Name: "replication", Takes: "HOW", Rare: true, Values: One("split", "round_robin")},
			{Name: "minibatches", Takes: "N", Rare: true},
			{Name: "most-held", Takes: "N", Rare: true},
			{Name: "streaming", Rare: true},
			{Name: "only", Takes: "NAMES", Rare: true, Values: list(familyNames)},
			{Name: "activation-limit", Takes: "N"},
		}},
		{Name: "Search", Words: []cli.Word{
			{Name: "planner", Takes: "NAME", Rare: true, Values: planners},
			{Name: "time", Takes: "DURATION"},
			{Name: "formula", Takes: "NAME", Rare: true, Values: One("paper", "artifact")},
			{Name: "async", Rare: true},
			{Name: "fit", Takes: "NAMES", Values: list(numberNames)},
			{Name: "sweep"},
			{Name: "all"}, {Name: "most-pipelines", Takes: "N"}, {Name: "rivals"}, {Name: "simulate"},
			{Name: "rounds", Takes: "N"}, {Name: "settings", Takes: "N"}, {Name: "profile-at", Takes: "M,N", Rare: true},
			{Name: "baselines", Rare: true}, {Name: "grid", Rare: true},
			{Name: "sizes", Takes: "N,N,..."}, {Name: "passes", Takes: "N"}, {Name: "analytic"},
			{Name: "on-chip"}, {Name: "board", Takes: "NAME=VALUE"},
		}},
		{Name: "Train", Words: []cli.Word{
			{Name: "steps", Takes: "N"},
			{Name: "optimizer", Takes: "NAME", Values: One(optim.Kinds()...)},
			{Name: "lr", Takes: "RATE"},
			{Name: "lr-schedule", Takes: "NAME", Rare: true,
				Values: One(optim.Constant, optim.StepDecay, optim.Cosine, optim.Polynomial)},
			{Name: "lr-warmup", Takes: "N", Rare: true},
			{Name: "lr-every", Takes: "N", Rare: true},
			{Name: "lr-factor", Takes: "FACTOR", Rare: true},
			{Name: "lr-scale", Takes: "HOW", Rare: true, Values: One(job.ScaleByPipelines, job.ScaleSplit)},
			{Name: "momentum", Takes: "PART", Rare: true},
			{Name: "weight-decay", Takes: "PART", Rare: true},
			{Name: "clip", Takes: "NORM", Rare: true},
			{Name: "eval-every", Takes: "N"},
			{Name: "eval-rows", Takes: "N", Rare: true},
			{Name: "replay", Takes: "RUN", Rare: true},
			{Name: "dry-run"},
		}},
		{Name: "Save", Words: []cli.Word{
			{Name: "save-every", Takes: "N"},
			{Name: "save-mode", Takes: "HOW", Rare: true, Values: One(job.SaveDrained, job.SaveStage)},
			{Name: "keep", Takes: "N", Rare: true},
			{Name: "resume", Takes: "RUN", Values: Checkpoints},
			{Name: "resume-averaged", Rare: true},
		}},
		{Name: "Times, in any unit", Words: []cli.Word{
			{Name: "forward", Takes: "T"},
			{Name: "backward", Takes: "T"},
			{Name: "weight", Takes: "T", Rare: true},
			{Name: "transfer", Takes: "T"},
			{Name: "update", Takes: "T", Rare: true},
			{Name: "all-reduce", Takes: "T", Rare: true},
			{Name: "norm", Takes: "T", Rare: true}, {Name: "parameters", Takes: "SIZE", Rare: true},
		}},
		{Name: "Processes", Words: []cli.Word{
			{Name: "processes", Takes: "N"}, {Name: "hosts", Takes: "HOSTS"}, {Name: "restarts", Takes: "N"},
			{Name: "run-token-file", Takes: "FILE", Rare: true, Values: anyFile},
			{Name: "executable", Takes: "PATH", Rare: true, Values: anyFile}, {Name: "name", Takes: "NAME"},
			{Name: "limit", Takes: "DURATION", Rare: true}, {Name: "grace", Takes: "DURATION", Rare: true},
			{Name: "cores-per-process", Takes: "N", Rare: true},
			{Name: "memory-per-process", Takes: "SIZE", Rare: true},
			{Name: "tls", Rare: true}, {Name: "mpi", Takes: "NAME", Rare: true, Values: One("openmpi", "mpich")},
			{Name: "image", Takes: "IMAGE", Rare: true},
			{Name: "claim", Takes: "NAME", Rare: true},
			{Name: "mount-at", Takes: "DIR", Rare: true},
			{Name: "secret", Takes: "NAME", Rare: true}, {Name: "node-selector", Takes: "NAME=VALUE", Rare: true},
			{Name: "namespace", Takes: "NAME", Rare: true},
		}},
		{Name: "Format", Words: []cli.Word{
			{Name: "from", Takes: "FORMAT", Values: formats(Imports())},
			{Name: "to", Takes: "FORMAT", Values: formats(Exports())},
			{Name: "time-unit", Takes: "UNIT", Values: One("s", "ms")},
			{Name: "device", Takes: "NAME"},
			{Name: "loss", Takes: "LOSS", Values: One(rules.Losses...)},
			{Name: "fuse", Takes: "ON|OFF", Values: One("on", "off")},
			{Name: "optimizer-state"},
		}},
		{Name: "Output", Words: []cli.Word{
			{Name: "out", Takes: "PATH", Values: anyFile},
			{Name: "manifest", Takes: "FILE", Values: anyFile},
			{Name: "overwrite"}, {Name: "live", Takes: "ADDRESS"}, {Name: "explain"}, {Name: "json"}, {Name: "text"},
			{Name: "svg", Takes: "FILE", Values: files("svg")},
			{Name: "html", Takes: "FILE", Values: files("html")},
			{Name: "address", Takes: "ADDRESS"},
			{Name: "metrics", Takes: "ADDRESS", Rare: true},
			{Name: "token-file", Takes: "FILE", Rare: true, Values: anyFile},
		}},
		{Name: "Other", Words: []cli.Word{
			{Name: "job", Takes: "FILE", Values: files("yaml", "yml")},
			{Name: "log", Takes: "FORM", Rare: true, Values: One("human", "json")},
			{Name: "no-descriptions"}, {Name: "help"}, {Name: "version"},
		}},
	}
}

// anyFile lets the shell complete paths.
func anyFile(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}
