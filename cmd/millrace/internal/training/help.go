package training

// trainHelp is the long help of train; trainMore is what "help train all" adds.
const (
	trainHelp = `train profiles a model, plans how to spread it over workers, and trains it. Into --out it writes checkpoints, a
report and the plan. The profile is measured by another process; what an earlier profile measured is not measured
again. These flags fix a part of the plan: --stages, --split, --schedule, --weights, --micro-batches, --recompute. The
rest is searched. --plan fixes everything. --program fixes the order of work, the micro-batches and the weight policy.

Ctrl-C finishes the step under way, saves and ends. A second Ctrl-C ends at once. --resume continues the training,
also with another number of workers or another plan.`

	trainMore = `SIGINT (Ctrl-C), SIGTERM and SIGHUP all do this.

If --resume names a folder, the run continues from its newest complete checkpoint. The folder may be shared by all
hosts, or each host may have one of its own; missing files are copied from the hosts that have them. The number of
processes may change. A setting that neither a flag nor the job file gives is taken from the checkpoint, and train
prints which ones. If the checkpoint is an earlier one of --out, the later ones are moved aside there. --overwrite
moves an earlier run aside, and deletes it once the new run has a checkpoint.

In several processes (millrace launch), one host of each type measures the model, and one pair of processes at each
level measures the links. --cluster gives the links instead, in a file as doctor --links writes it. A file that
describes other hosts is refused. If a process is lost, all others end within seconds with exit code 3, and error.json
in --out gives the cause. A launcher that starts all processes again, as launch --restarts does, needs no other flags:
training continues from the last complete checkpoint in --out. To continue with fewer processes, give --resume.

The weight policies stash, vertical, 2bw and latest have no flush: they need an order without a flush, such as 1f1b-rr.
Such a stream drains for every evaluation and checkpoint. Therefore --eval-every and --save-every change the result.

--pipelines N trains N models side by side, held together by a reference model (AvgPipe). --lr-scale says how the
learning rate depends on N. With --lr-scale pipelines the rate is multiplied by N, because the reference moves by the
mean of N steps. --lr-scale split is for pipelines that each take 1/N of the batch that the rate was chosen for: with
Adam or --clip the rate is multiplied by the square root of N, otherwise it stays, and alpha is 3/(2N).
--resume-averaged continues with another N. All models then begin at the checkpoint's reference, with the average of
the optimizer states.

--advance N lets the first stage run N more forwards before its first backward than in 1F1B. Later stages run
fewer additional ones, and the last stage none. --advance auto adds one every few steps, as long as steps become faster
and memory suffices.

--post-validate with --clip makes updates before the norm of the gradients is known. The next step tests the norm. An
update over the limit is taken back and made again, clipped.

If replicas split micro-batches, layers that normalise over a micro-batch see only a slice of it. Such a plan is
refused unless --batch-norm per_slice allows it.`
)
