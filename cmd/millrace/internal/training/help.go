package training

// trainHelp is the long help of train; trainMore is what "help train all" adds.
const (
	trainHelp = `train profiles a model (in a process of its own, what was not measured before), plans, checks,
simulates, trains, and writes checkpoints and a report into --out. What a flag fixes is not
searched: --stages, --split, --schedule, --weights, --micro-batches, --recompute, or all of it by
--plan or --program.

Ctrl-C stops it after the step under way, which it saves; a second one ends it at once. --resume goes on
from there, also with another number of workers or under another plan.`

	trainMore = `SIGINT, SIGTERM and SIGHUP stop it alike.

Of a folder --resume takes the newest checkpoint that is whole; hosts may share the folder or have one
each, and files go where they are needed. The number of processes may be another. Settings that neither a
flag nor the job file gives are the checkpoint's, and train says which. From an earlier checkpoint of --out,
the later ones are set aside there. --overwrite sets an earlier run aside and deletes it once the new one
has a checkpoint.

In several processes (millrace launch) one host of each type measures the model, and one pair of
processes the link of each level; --cluster takes links from a file, as doctor --links writes them, and
is refused where it is not of the hosts that there are. All end within seconds of one that is lost, with exit code 3,
and error.json in --out says why. A launcher that starts all again, as launch --restarts does, needs
no other flags: training goes on from the last whole checkpoint in --out. With fewer processes, give
--resume.

Weights without a flush (--weights stash, vertical, 2bw, latest) are for orders without one, such as
1f1b-rr. Such a stream drains for every evaluation and checkpoint, so that --eval-every and
--save-every are part of what is computed.

--pipelines N trains N models side by side, which a reference holds together (AvgPipe). --lr-scale
says how the learning rate follows N. pipelines: N times, as the reference moves by the mean of their
steps. split, for pipelines of which each takes an N-th of the batch that the rate is for: the root of
N with Adam or clipping, else 1, with alpha 3/2 over N.
--resume-averaged goes on with another N: all begin at the checkpoint's reference, with the average
of the optimizer states.

--advance N has the first stage run N forwards more in front of its first backward than 1F1B,
graded down to none on the last. auto adds one every few steps while steps get faster and memory
lasts.

--post-validate with --clip lets updates go ahead before the norm of the gradients is known; it is
tested in the next step, and an update over the limit is taken back and made again, clipped.

--batch-norm per_slice lets layers that normalise over a micro-batch do so over each replica's slice
of it, where replicas split micro-batches; without it such a plan is refused.`
)
