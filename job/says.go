package job

// groupsSay holds the schema's description of every group, by path.
var groupsSay = map[string]string{
	"model":        "what is trained",
	"data":         "what it learns from, and in which order",
	"machine":      "what there is to train on",
	"plan":         "samples of a step, and what is fixed of how workers share them; what is left out is searched",
	"plan.elastic": "pipelines side by side, held together by a reference (AvgPipe)",
	"train":        "how long the model learns, by which steps, and how often it is evaluated",
	"save":         "checkpoints: when they are written, how many are kept, which one to go on from",
	"output":       "where the run writes, and who may look on",
}

// says holds the schema's description of every setting, by key.
var says = map[string]string{
	"model":    "a built-in model (mlp, convnet, gpt, llama, lstm) or the path of a .yaml file or a PyTorch network",
	"settings": "settings of the built-in model, like layers: 8",
	"freeze": "parameters that do not learn: names of layers, modules or parameters, or globs of them, such as embed, " +
		"block0.* and *.bias",
	"data": "digits, fashion-mnist, a folder of IDX files, a .csv, .npz or .safetensors file, " +
		"or a text",
	"train_part": "part of the rows of an .npz or .safetensors file that trains, above 0; the others are evaluated; " +
		"left out, 0.9",
	"tokenizer": "of a text: gpt2 (which is r50k), p50k, cl100k or o200k; left out, its bytes are the tokens",
	"seed":      "of initial weights, masks and data order",
	"init": "first values of all parameters: a safetensors file, or a folder or index of several, by the names of this " +
		"model, or as GPT-2's (for gpt) and Llama's (for llama) are published",
	"workers":            "most workers to use (default: 2, or all devices of the cluster)",
	"cores":              "cores that the workers share; this machine's where left out",
	"threads_per_worker": "threads of one operator",
	"bind": "always or never: whether workers are bound to processors; left out, where no other run on this " +
		"machine has bound its own",
	"cluster":           "a cluster file to plan for instead of this machine",
	"precision":         "what a described cluster is planned for: f32, tf32, f16, bf16 or fp8; training is in f32",
	"tensor":            "devices of a described cluster that compute each layer together, as one; planned, not trained",
	"sequence_parallel": "such groups divide norms, dropouts and residuals too, by positions",
	"batch":             "samples of one step",
	"steps":             "training steps in all",
	"optimizer":         "sgd, adam, adamw, lars or asgd and its coefficients",
	"rate":              "learning rate and its schedule",
	"clip":              "limit of the gradients' global norm; 0 is none",
	"post_validate": "with clip: updates do not wait for the gradient norm; they are validated in the next step and " +
		"taken back where it is over the limit",
	"wire": "a cluster file or preset whose links the workers of this machine are put behind",
	"stages": "fix the number of stages of the whole plan; 1 with several workers is data parallelism. A schedule that " +
		"is fixed too and has several stages on each worker takes as many as it needs, unless this is more than the workers",
	"split":     "first layers of stages 1, 2, ...: names or positions",
	"schedule":  "fix the schedule: 1f1b, afab, pb, zb-h1, 1f1b-rr, ...",
	"program":   "a file with a Program to use as the schedule, as millrace schedule writes them",
	"weights":   "fix the weight policy: sync, stash, vertical, 2bw, latest, elastic, asp",
	"staleness": "how many minibatches a worker of schedule asp may be ahead of the slowest; left out, any number",
	"boundary": "f32, or f16, bf16 or i8: how stages on different workers write the activations and gradients that " +
		"they send each other; in fewer bits than 32 they are rounded, and the bits of one worker are not promised",
	"pipelines": "pipelines side by side over the same workers, each with a model of its own, held together by a " +
		"reference (AvgPipe); 1 is plain training",
	"alpha":     "part of the reference that a pipeline takes over at each update, 0 to 1; left out, 1 over the pipelines",
	"averaging": "dilute_first, which keeps the reference the average, or printed, as the paper lists its steps",
	"reference": "inline, where each worker updates the reference itself, or beside, where a thread of its own does it " +
		"behind a queue, and pipelines take the newest there is",
	"rate_scale": "pipelines multiplies the learning rate by their number: the reference moves by the mean of their" +
		" steps, so that each step counts for one part in N; split, for pipelines that take an N-th of " +
		"the batch each, multiplies it by the root of their number with Adam or clip and leaves it " +
		"otherwise, with alpha 3/2 over their number unless alpha is given; left out, the rate is as " +
		"given",
	"advance": "forwards in advance of 1F1B on the first stage, graded down to none on the last, or auto: one " +
		"more every few steps while they get faster and memory lasts (AvgPipe), or printed: so, and as many on every " +
		"stage (its Algorithm 1)",
	"batch_norm": "per_slice lets layers that normalise over a micro-batch do so over slices, where replicas split " +
		"micro-batches",
	"micro_batch":   "fix the samples of a micro-batch",
	"micro_batches": "fix the micro-batches of a step",
	"recompute": "auto, none, stage or every:K, K layers at a time; of described clusters also blocks, a block at a " +
		"time without embedding, head and loss, and selective, scores of attention alone, which are planned, not trained",
	"shard": "none, zero1, zero2 or zero3: what the replicas of a stage divide, the optimizer's states, gradients too, " +
		"weights too; planned for a described cluster, not trained",
	"gradients": "overlapped, bucket=25MB or behind: replicas sum gradients beside the last backward, so many bytes at " +
		"once at least, or behind it, which is planned for a described cluster, not trained",
	"memory_limit": "of each worker, like 512MiB",
	"profile":      "a profile to plan with instead of measuring",
	"thorough":     "measure all sizes of micro-batches, often; minutes for a large model",
	"plan":         "a plan to carry out instead of searching one",
	"collectives": "ordered sums gradients over replicas in rank order, the same bits anywhere; native has Gloo do it," +
		" in an order of its own, over connections that are neither encrypted nor authenticated",
	"any_order":  "train with a program whose sums do not ascend, which leaves other bits than one worker",
	"eval_every": "steps between evaluations; 0 is only at the end",
	"eval_rows":  "test samples of an evaluation, the first ones; 0 is all; left out, all of a table and 256 of a text",
	"save_every": "steps between checkpoints; 0 is only at the end",
	"save_mode": "drain, where nothing is in flight as a checkpoint is written, or stage: each stage of a stream saves " +
		"itself behind its last update of every so many steps, and nothing is drained for it",
	"keep":   "checkpoints to keep; 0 is all",
	"resume": "a checkpoint, or a folder of them, to go on from",
	"resume_averaged": "go on with another number of pipelines than the checkpoint has: all begin at its reference, with" +
		" the average of their optimizer states",
	"replay": "the folder of a run with schedule asp, or with reference beside, whose updates this run makes in the " +
		"same order",
	"out":        "folder that everything is written to; left out, runs/MODEL",
	"overwrite":  "write over what an earlier run left in the folder",
	"metrics":    "address that serves Prometheus metrics, like localhost:9090",
	"live":       "address that serves pages of the run while it lasts, like :0 for any free port of this machine",
	"token_file": "file with the token that requests for metrics and pages must bear",
}
