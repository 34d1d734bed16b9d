package job

// groupsSay holds the schema's description of every group, by path.
var groupsSay = map[string]string{
	"model":        "what is trained",
	"data":         "the data that it learns from, and their order",
	"machine":      "the workers and their hardware",
	"plan":         "samples of a step, and what is fixed in the plan; everything else is searched",
	"plan.elastic": "pipelines side by side, held together by a reference (AvgPipe)",
	"train":        "number of steps, optimizer, learning rate and evaluations",
	"save":         "checkpoints: when they are written, how many are kept, and from which one the run continues",
	"output":       "where the run writes, and the addresses that show it",
}

// says holds the schema's description of every setting, by key.
var says = map[string]string{
	"model":    "a built-in model (mlp, convnet, gpt, llama, lstm), or the path of a .yaml file or a PyTorch network",
	"settings": "settings of the built-in model, like layers: 8",
	"freeze": "parameters that do not learn: names of layers, modules or parameters, or globs of such names, like " +
		"embed, block0.* and *.bias",
	"data": "digits, fashion-mnist, a folder of IDX files, a .csv, .npz or .safetensors file, or a text",
	"train_part": "fraction of the rows of an .npz or .safetensors file that is for training, above 0; the others " +
		"are for evaluation. Default 0.9",
	"tokenizer": "how a text is split into tokens: gpt2 (the same as r50k), p50k, cl100k or o200k. By default " +
		"every byte is a token",
	"seed": "seed of initial weights, dropout masks and the order of data",
	"init": "first values of all parameters: a safetensors file, or the folder or index of several. Names of " +
		"tensors are those of this model, or as published those of GPT-2 (for gpt) and Llama (for llama)",
	"workers":            "largest number of workers. Default 2, or all devices of the cluster",
	"cores":              "number of cores that the workers share. Default: those of this machine",
	"threads_per_worker": "threads that compute one operator",
	"bind": "always or never: whether workers are bound to processors. By default they are, unless another run on " +
		"this machine has bound its workers",
	"cluster": "a cluster file to plan for instead of this machine",
	"precision": "number format for which a described cluster is planned: f32, tf32, f16, bf16 or fp8. Training " +
		"is in f32",
	"tensor": "number of devices of a described cluster that compute each layer together, like one device; " +
		"planned, not trained",
	"sequence_parallel": "groups of tensor also divide norms, dropouts and residuals, by positions",
	"batch":             "samples of one step",
	"steps":             "training steps in all",
	"optimizer":         "sgd, adam, adamw, lars or asgd and its coefficients",
	"rate":              "learning rate and its schedule",
	"clip":              "limit of the gradients' global norm; 0 is none",
	"post_validate": "with clip: updates do not wait for the gradient norm. The next step tests the norm, and " +
		"takes back updates over the limit",
	"wire": "a cluster file or preset; messages between the workers of this machine are slowed down to its links",
	"stages": "fix the number of stages of the whole plan; 1 with several workers is data parallelism. If the " +
		"schedule is fixed too and cannot have so few, because each worker has several, it takes as many as it needs",
	"split":    "first layers of stages 1, 2, ...: names or positions",
	"schedule": "fix the schedule: 1f1b, afab, pb, zb-h1, 1f1b-rr, ...",
	"program":  "a file with a Program to use as the schedule, as millrace schedule --text writes it",
	"weights":  "fix the weight policy: sync, stash, vertical, 2bw, latest, elastic, asp",
	"staleness": "with schedule asp: how many minibatches a worker may be ahead of the slowest. Default: any " +
		"number",
	"boundary": "format in which stages on different workers send each other activations and gradients: f32, f16, " +
		"bf16 or i8. In fewer than 32 bits they are rounded, and the bits of one worker are not promised",
	"pipelines": "number of pipelines side by side on the same workers, each with its own model, held together by " +
		"a reference (AvgPipe); 1 is plain training",
	"alpha": "how far each update moves a pipeline's weights to the reference, 0 to 1. Default: 1 / pipelines",
	"averaging": "order of an update: dilute_first, which keeps the reference equal to the average, or printed, " +
		"as in the paper",
	"reference": "inline: each worker updates the reference itself; beside: a thread beside each worker does, " +
		"from a queue, and pipelines use the newest reference",
	"rate_scale": "how the learning rate depends on the number of pipelines. pipelines multiplies it by this " +
		"number, because the reference moves by the mean of all steps. split is for pipelines that each take an " +
		"equal part of the batch: with Adam or clip it multiplies the rate by the square root of the number, " +
		"otherwise it leaves the rate, and alpha is 3/2 / pipelines unless given. By default the rate is as given",
	"advance": "additional forwards of the first stage before its first backward, compared with 1F1B; later " +
		"stages have fewer, the last none. auto: one more every few steps, while steps become faster and memory " +
		"suffices (AvgPipe). printed: the same, but with as many on every stage (the paper's Algorithm 1)",
	"batch_norm":    "per_slice: if replicas split micro-batches, layers may normalise over a slice of a micro-batch",
	"micro_batch":   "fix the samples of a micro-batch",
	"micro_batches": "fix the micro-batches of a step",
	"recompute": "auto, none, stage, or every:K for K layers at a time. For described clusters also blocks (one " +
		"block at a time, without embedding, head and loss) and selective (only attention scores); these two are " +
		"planned, not trained",
	"shard": "what the replicas of a stage divide: none, zero1 (the optimizer's states), zero2 (gradients too) or " +
		"zero3 (weights too); planned for a described cluster, not trained",
	"gradients": "when replicas sum gradients: overlapped (during the last backward), bucket=25MB (the same, at " +
		"least so many bytes at once), or behind (after the last backward), which is planned for a described " +
		"cluster, not trained",
	"memory_limit": "memory limit of each worker, like 512MiB",
	"profile":      "a profile to plan with instead of measuring",
	"thorough":     "measure all sizes of micro-batches, often: minutes for a large model",
	"plan":         "a plan to carry out instead of searching one",
	"collectives": "who sums gradients over replicas. ordered: millrace, in rank order, with the same bits " +
		"everywhere. native: Gloo, in an order of its own, over connections that are neither encrypted nor " +
		"authenticated",
	"any_order":  "accept a program that adds gradients in another order than one worker; the bits then differ",
	"eval_every": "steps between evaluations; 0 means only at the end",
	"eval_rows": "number of held-out samples in an evaluation, the first ones; 0 means all. Default: all of a " +
		"table, 256 of a text",
	"save_every": "steps between checkpoints; 0 means only at the end",
	"save_mode": "drain: a checkpoint is written when nothing is in flight. stage: each stage of a stream saves " +
		"after its own last update of every so many steps, and nothing is drained",
	"keep":   "number of checkpoints to keep; 0 means all",
	"resume": "a run, a checkpoint, or a folder of checkpoints, to continue from",
	"resume_averaged": "continue with another number of pipelines than in the checkpoint. All begin at its " +
		"reference, with the average of their optimizer states",
	"replay": "folder of a run with schedule asp or reference beside; this run makes its updates in the same " +
		"order",
	"out":        "folder to which everything is written. Default: runs/MODEL",
	"overwrite":  "replace an earlier run in the folder",
	"metrics":    "address that serves Prometheus metrics, like localhost:9090",
	"live":       "address of the pages of the run, served while it lasts, like :0 for any free port of this machine",
	"token_file": "file with the token that readers of metrics and pages must give",
}
