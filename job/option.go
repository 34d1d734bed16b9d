package job

import (
	"strconv"
	"strings"
)

// Option is a setting that can be given on the command line.
type Option struct {
	Name, Doc string
	Short     string // one letter for the name, on verbs that do not use the letter otherwise
	Bool      bool
	Bare      string // value of an option that is given without a value; empty means that it needs one
	Set       func(j *Job, value string) error
}

// keys maps options to their keys, where the two differ by more than dashes.
var keys = map[string]string{
	"set":          "settings",
	"optimizer":    "optimizer.kind",
	"momentum":     "optimizer.momentum",
	"weight-decay": "optimizer.weight_decay",
	"lr":           "rate.base",
	"lr-schedule":  "rate.kind",
	"lr-warmup":    "rate.warmup",
	"lr-every":     "rate.every",
	"lr-factor":    "rate.factor",
	"lr-scale":     "rate_scale",
}

// Key returns the key of the option's setting.
func (o Option) Key() string { return keyOf(o.Name) }

func keyOf(name string) string {
	if key, ok := keys[name]; ok {
		return key
	}
	return strings.ReplaceAll(name, "-", "_")
}

// noted makes each option record in the job that it was given.
func noted(options []Option) []Option {
	for i, o := range options {
		options[i].Set = func(j *Job, v string) error {
			j.giveAs(o.Key(), "--"+o.Name)
			return o.Set(j, v)
		}
	}
	return options
}

func whole(doc, name string, at func(*Job) *int) Option {
	return Option{Name: name, Doc: doc, Set: func(j *Job, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return j.wrong(keyOf(name), v, "a whole number")
		}
		*at(j) = n
		return nil
	}}
}

// atLeastOne describes the right values of numbers that may be left out.
const atLeastOne = "a whole number, 1 or more, or leave it out"

// fixed returns an option for a whole number of at least 1. The planner chooses most of these numbers if they are left
// out.
func fixed(doc, name string, at func(*Job) *int) Option {
	o := whole(doc, name, at)
	set := o.Set
	o.Set = func(j *Job, v string) error {
		if err := set(j, v); err != nil {
			return err
		}
		if n := *at(j); n < 1 {
			return j.wrong(keyOf(name), n, atLeastOne)
		}
		return nil
	}
	return o
}

func word(doc, name string, at func(*Job) *string) Option {
	return Option{Name: name, Doc: doc, Set: func(j *Job, v string) error { *at(j) = v; return nil }}
}

func short(letter string, o Option) Option {
	o.Short = letter
	return o
}

func number(doc, name string, at func(*Job) *float64) Option {
	return Option{Name: name, Doc: doc, Set: func(j *Job, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return j.wrong(keyOf(name), v, "a number")
		}
		*at(j) = f
		return nil
	}}
}

func truth(doc, name string, at func(*Job) *bool) Option {
	return Option{Name: name, Doc: doc, Bool: true, Set: func(j *Job, v string) error {
		on, err := strconv.ParseBool(v)
		if err != nil {
			return j.wrong(keyOf(name), v, "true or false")
		}
		*at(j) = on
		return nil
	}}
}

// ModelOptions name the model. PlanOptions, ElasticOptions and ClusterOptions are further settings that a plan depends
// on. TrainOptions are all other settings.
var (
	ModelOptions = noted([]Option{
		word("built-in name (see: millrace model ls), .yaml file or PyTorch network", "model",
			func(j *Job) *string { return &j.Model.Name }),
		{Name: "set", Doc: "a setting of the built-in model, like layers=4; may be repeated", Set: setSetting},
		{Name: "freeze", Doc: "parameters that do not learn: layers, names or globs, with commas",
			Set: func(j *Job, v string) error {
				if !j.Model.frozen {
					j.Model.Freeze, j.Model.frozen = nil, true // flags replace a file's patterns
				}
				j.Model.Freeze = append(j.Model.Freeze, strings.Split(v, ",")...)
				return nil
			}},
	})
	PlanOptions = noted([]Option{
		whole("largest number of workers (default: the plan's or 2, or all of --cluster)", "workers",
			func(j *Job) *int { return &j.Machine.Workers }),
		fixed("cores that the workers share (default: this machine's)", "cores",
			func(j *Job) *int { return &j.Machine.Cores }),
		word("slow messages down to the links of a cluster file or preset", "wire",
			func(j *Job) *string { return &j.Machine.Wire }),
		whole("threads that compute one operator (default: 1)", "threads-per-worker",
			func(j *Job) *int { return &j.Machine.ThreadsPerWorker }),
		fixed("samples of one step, of each pipeline if there are several (default: 32)", "batch",
			func(j *Job) *int { return &j.Plan.Batch }),
		fixed("fix the plan's stages (default: searched); 1 is data parallelism", "stages",
			func(j *Job) *int { return &j.Plan.Stages }),
		{Name: "split", Doc: "first layers of stages 1, 2, ...: names or positions, with commas",
			Set: func(j *Job, v string) error {
				j.Plan.Split = strings.Split(v, ",")
				return nil
			}},
		word("fix the schedule (see: millrace schedule ls)", "schedule",
			func(j *Job) *string { return &j.Plan.Schedule }),
		word("a Program to use as the schedule, as schedule --text writes it", "program",
			func(j *Job) *string { return &j.Plan.Program }),
		word("fix the weight policy: sync, stash, vertical, 2bw, latest, elastic, asp", "weights",
			func(j *Job) *string { return &j.Plan.Weights }),
		{Name: "staleness", Doc: "with asp: minibatches that a worker may be ahead (default: any number)",
			Set: func(j *Job, v string) error {
				n, err := strconv.Atoi(v)
				if err != nil || n < 0 {
					return j.wrong("staleness", v, "a number of minibatches, 0 or more")
				}
				j.Plan.Staleness = &n
				return nil
			}},
		word("format of tensors sent between stages: f32, f16, bf16 or i8 (default: f32)", "boundary",
			func(j *Job) *string { return &j.Plan.Boundary }),
		word("per_slice: replicas may normalise over slices of a micro-batch", "batch-norm",
			func(j *Job) *string { return &j.Plan.BatchNorm }),
		fixed("fix the samples of a micro-batch", "micro-batch", func(j *Job) *int { return &j.Plan.MicroBatch }),
		fixed("fix the micro-batches of a step", "micro-batches", func(j *Job) *int { return &j.Plan.MicroBatches }),
		word("auto, none, stage, every:K layers; planned only: blocks, selective", "recompute",
			func(j *Job) *string { return &j.Plan.Recompute }),
		word("memory limit of each worker, like 512MiB", "memory-limit",
			func(j *Job) *string { return &j.Machine.MemoryLimit }),
		word("a profile to plan with instead of measuring", "profile", func(j *Job) *string { return &j.Plan.Profile }),
		truth("measure all sizes of micro-batches, often: minutes for a large model", "thorough",
			func(j *Job) *bool { return &j.Machine.Thorough }),
		word("sgd, adam, adamw, lars or asgd (default: the model's)", "optimizer",
			func(j *Job) *string { return &j.Train.Optimizer.Kind }),
		number("momentum of sgd and lars (default: 0.9 for lars, else 0)", "momentum",
			func(j *Job) *float64 { return &j.Train.Optimizer.Momentum }),
		number("weight decay (default: 0.01 for adamw, 0.0005 for lars, else 0)", "weight-decay",
			func(j *Job) *float64 { return &j.Train.Optimizer.WeightDecay }),
		number("limit of the gradients' global norm", "clip", func(j *Job) *float64 { return &j.Train.Clip }),
		truth("with --clip: update before the norm is known, and check it later", "post-validate",
			func(j *Job) *bool { return &j.Plan.PostValidate }),
	})
	// ElasticOptions are for AvgPipe: elastic averaging, and forwards in advance.
	ElasticOptions = noted([]Option{
		word("additional forwards of the first stage, or auto, printed (train only)", "advance",
			func(j *Job) *string { return &j.Plan.Advance }),
		{
			Name: "pipelines",
			Doc:  "number of models trained side by side, held together by a reference",
			Set: func(j *Job, v string) error {
				n, err := strconv.Atoi(v)
				if err != nil || n < 1 {
					return j.wrong("pipelines", v, "a number of pipelines, 1 (plain training) or more")
				}
				j.Plan.Elastic.Pipelines = n
				return nil
			},
		},
		number("how far an update moves to the reference, 0 to 1 (default: 1 / --pipelines)", "alpha",
			func(j *Job) *float64 { return &j.Plan.Elastic.Alpha }),
		word("order of an update: dilute_first (keeps the average) or printed (the paper's)", "averaging",
			func(j *Job) *string { return &j.Plan.Elastic.Averaging }),
		word("who updates the reference: inline (workers) or beside (threads of its own)", "reference",
			func(j *Job) *string { return &j.Plan.Elastic.Reference }),
	})
	// ClusterOptions are for hardware that a cluster file describes. A training compares this description with its
	// hosts.
	ClusterOptions = noted([]Option{
		word("cluster to plan for: a file or a preset (see: millrace cluster ls)", "cluster",
			func(j *Job) *string { return &j.Machine.Cluster }),
		word("of described devices: f32, tf32, f16, bf16 or fp8 (training is in f32)", "precision",
			func(j *Job) *string { return &j.Machine.Precision }),
		{Name: "tensor", Doc: "devices of a tensor-parallel group; planned only (with --sweep several)",
			Set: func(j *Job, v string) error {
				j.Machine.Tensor = nil
				for _, text := range strings.Split(v, ",") {
					n, err := strconv.Atoi(strings.TrimSpace(text))
					if err != nil || n < 1 || n > 64 {
						return j.wrong("tensor", v, "1 to 64 devices, or several such numbers with commas")
					}
					j.Machine.Tensor = append(j.Machine.Tensor, n)
				}
				return nil
			}},
		truth("tensor-parallel groups also divide norms and residuals, by positions", "sequence-parallel",
			func(j *Job) *bool { return &j.Machine.SequenceParallel }),
		word("what replicas divide: none, zero1, zero2 or zero3 (with --sweep several)", "shard",
			func(j *Job) *string { return &j.Plan.Shard }),
		word("when replicas sum: overlapped, behind, bucket=25MB (default: overlapped)", "gradients",
			func(j *Job) *string { return &j.Plan.Gradients }),
	})
	TrainOptions = noted([]Option{
		word("digits, fashion-mnist, IDX folder, .csv, .npz, .safetensors or text", "data",
			func(j *Job) *string { return &j.Data.Source }),
		number("fraction of the rows of arrays that is for training (default: 0.9)", "train-part",
			func(j *Job) *float64 { return &j.Data.TrainPart }),
		word("split a text into tokens: gpt2, p50k, cl100k, o200k (default: bytes)", "tokenizer",
			func(j *Job) *string { return &j.Data.Tokenizer }),
		whole("training steps in all (default: 200)", "steps", func(j *Job) *int { return &j.Train.Steps }),
		number("learning rate (default: the model's)", "lr", func(j *Job) *float64 { return &j.Train.Rate.Base }),
		word("constant, step, cosine or polynomial", "lr-schedule", func(j *Job) *string { return &j.Train.Rate.Kind }),
		whole("steps over which the rate rises (default: the model's; cosine: a tenth at most)", "lr-warmup",
			func(j *Job) *int { return &j.Train.Rate.Warmup }),
		whole("with --lr-schedule step: steps between two changes of the rate", "lr-every",
			func(j *Job) *int { return &j.Train.Rate.Every }),
		number("with --lr-schedule step: factor of each change", "lr-factor",
			func(j *Job) *float64 { return &j.Train.Rate.Factor }),
		{Name: "seed", Doc: "seed of weights, masks and the order of data (default: 1)", Set: func(j *Job, v string) error {
			n, err := strconv.ParseUint(v, 10, 64)
			if err != nil {
				return j.wrong("seed", v, "a whole number, 0 or more")
			}
			j.Data.Seed = n
			return nil
		}},
		word("first values: a .safetensors file or folder, also of GPT-2 or Llama", "init",
			func(j *Job) *string { return &j.Model.Init }),
		word("a plan to carry out instead of searching one", "plan", func(j *Job) *string { return &j.Plan.File }),
		word("bind workers to processors: always, never (default: unless another run does)", "bind",
			func(j *Job) *string { return &j.Machine.Bind }),
		whole("steps between evaluations (default: at the end)", "eval-every",
			func(j *Job) *int { return &j.Train.EvalEvery }),
		whole("samples of an evaluation, 0: all (default: all, 256 of a text)", "eval-rows",
			func(j *Job) *int { return &j.Train.EvalRows }),
		whole("steps between checkpoints (default: at the end)", "save-every", func(j *Job) *int { return &j.Save.Every }),
		word("drain (default), or stage: stages of a stream save without a drain", "save-mode",
			func(j *Job) *string { return &j.Save.Mode }),
		whole("checkpoints to keep, 0: all (default: 3)", "keep", func(j *Job) *int { return &j.Save.Keep }),
		truth("accept a --program that adds gradients in another order; the bits differ", "any-order",
			func(j *Job) *bool { return &j.Plan.AnyOrder }),
		word("who sums gradients: ordered (millrace) or native (Gloo, not encrypted)",
			"collectives", func(j *Job) *string { return &j.Machine.Collectives }),
		word("a run, a checkpoint or a folder of them, to go on from", "resume",
			func(j *Job) *string { return &j.Save.Resume }),
		truth("go on with another --pipelines, all from the reference", "resume-averaged",
			func(j *Job) *bool { return &j.Save.ResumeAveraged }),
		word("run of asp or --reference beside, whose order of updates is repeated", "replay",
			func(j *Job) *string { return &j.Train.Replay }),
		word("scale the rate for several pipelines: pipelines or split", "lr-scale",
			func(j *Job) *string { return &j.Train.RateScale }),
		short("o", word("folder that everything is written to (default: runs/MODEL)", "out",
			func(j *Job) *string { return &j.Output.Folder })),
		truth("replace an earlier run in --out", "overwrite", func(j *Job) *bool { return &j.Output.Overwrite }),
		word("address that serves Prometheus metrics, like localhost:9090", "metrics",
			func(j *Job) *string { return &j.Output.Metrics }),
		{Name: "live", Doc: "show the run in a browser while it lasts: --live, or --live=HOST:PORT", Bare: ":0",
			Set: func(j *Job, v string) error { j.Output.Live = v; return nil }},
		word("file with the token that readers of metrics and pages must give", "token-file",
			func(j *Job) *string { return &j.Output.TokenFile }),
	})
)

func setSetting(j *Job, v string) error {
	name, value, ok := strings.Cut(v, "=")
	if !ok || name == "" {
		return j.wrong("settings", v, "NAME=VALUE, like layers=4")
	}
	if j.Model.Settings == nil {
		j.Model.Settings = map[string]any{}
	}
	j.Model.Settings[name] = value
	return nil
}
