package runs

// The cuts of the models in most runs: the first layers of stages 1, 2, ...
var (
	mlp3  = []int{2, 4}
	mlp4  = []int{1, 3, 4}
	conv3 = []int{2, 5}
	gpt3  = []int{2, 4}
	gpt4  = []int{1, 3, 5}
	lstm3 = []int{1, 3}
)

// Placements of stages on workers: two chunks on each of two workers, a V over two workers, and two directions over
// four.
var (
	wrapped = [][]int{{0}, {1}, {0}, {1}}
	vee     = [][]int{{0}, {1}, {1}, {0}}
	twoWays = [][]int{{0, 3}, {1, 2}, {2, 1}, {3, 0}}
)

// Placements of replicated stages.
var (
	two2     = [][]int{{0, 1}, {2, 3}}
	two1     = [][]int{{0, 1}, {2}}
	one2     = [][]int{{0}, {1, 2}}
	three1   = [][]int{{0, 1, 2}, {3}}
	three1of = [][]int{{0, 1, 2}, {3}, {4, 5}}
	three3   = [][]int{{0, 1, 2}, {3, 4, 5}}
)

// flush returns a run under a family that ends each step with a flush. The run's tensors must equal those of the run on
// one worker.
func flush(family string, on [][]int, cuts []int) run {
	return run{Name: family + "-leaves-what-one-worker-leaves", Subject: "mlp", Like: "mlp-on-one-worker",
		leg: leg{layout: layout{Schedule: family, Cuts: cuts, On: on}, Steps: 6}}
}

// stream returns a run without a flush. Each minibatch is one micro-batch of 8 samples. The learning rate is so small
// that stale gradients do not amplify rounding errors.
func stream(name, weights string, steps int, on [][]int, cuts ...int) run {
	return run{Name: name, Subject: "mlp", leg: leg{Steps: steps, Flags: []string{"--lr", "0.02"},
		layout: layout{Schedule: "1f1b-rr", Weights: weights, Cuts: cuts, On: on, Batch: 8, MicroBatches: 1}}}
}

// list has all runs in the order of the output. A run that is named in Like comes before the runs that name it.
var list = concat(flushes(), streams(), replicas(), pipelines(), limits(), models(), resumed(), commandLine())

func concat(parts ...[]run) (all []run) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// flushes returns runs of the orders that end each step with a flush.
func flushes() []run {
	return []run{
		{Name: "mlp-on-one-worker", Subject: "mlp", leg: leg{layout: layout{Schedule: "single"}, Steps: 6}},
		flush("afab", nil, mlp3), flush("1f1b", nil, mlp3), flush("pb", nil, mlp3), flush("so", nil, mlp3),
		flush("mp", nil, mlp3),
		flush("zb-h1", nil, mlp3), flush("zb-h2", nil, mlp3), flush("zb-auto", nil, mlp3),
		flush("1f1b-as", nil, mlp3), flush("fbp-as", nil, mlp3),
		flush("interleaved", wrapped, mlp4), flush("bfs", wrapped, mlp4),
		flush("zb-v", vee, mlp4), flush("v-half", vee, mlp4), flush("v-min", vee, mlp4),
	}
}

// streams returns runs of the weight policies without a flush.
func streams() []run {
	return []run{
		stream("stash-uses-one-version-in-both-passes", "stash", 11, nil, 2, 4),
		stream("vertical-uses-one-version-on-all-stages", "vertical", 11, nil, 2, 4),
		stream("latest-uses-what-is-there", "latest", 11, nil, 2, 4),
		{Name: "2bw-is-one-minibatch-late", Subject: "mlp", leg: leg{Steps: 6,
			layout: layout{Schedule: "1f1b-rr", Weights: "2bw", Cuts: mlp3, MicroBatches: 4}}},
		{Name: "stash-adds-up-a-minibatch-of-three", Subject: "mlp", leg: leg{Steps: 6,
			layout: layout{Schedule: "1f1b-rr", Weights: "stash", Cuts: mlp3, MicroBatches: 3}}},
		{Name: "dp-async-sums-one-update-late", Subject: "mlp", leg: leg{Steps: 6,
			layout: layout{Schedule: "dp-async", Weights: "2bw", On: [][]int{{0, 1}}}}},
		// asp with a single trainer, so that updates have only one order
		{Name: "asp-updates-where-the-weights-are", Subject: "mlp", leg: leg{Steps: 6,
			layout: layout{Schedule: "asp", Weights: "asp", On: [][]int{{0, 1}}, MicroBatches: 1}}},
	}
}

// replicas returns runs with replicated stages.
func replicas() []run {
	rows := func(name, family, like string, on [][]int, cuts ...int) run {
		return run{Name: name, Subject: "mlp", Like: like, leg: leg{Steps: 6,
			layout: layout{Schedule: family, Cuts: cuts, On: on, Rows: true}}}
	}
	turns := func(name, family, like string, on [][]int, cuts ...int) run {
		r := rows(name, family, like, on, cuts...)
		r.Rows = false
		return r
	}
	return []run{
		stream("stash-2-2-in-turn", "stash", 10, two2, 3),
		stream("stash-2-2-in-turn-with-a-tail", "stash", 11, two2, 3),
		stream("stash-3-3-in-turn-with-a-tail", "stash", 11, three3, 3),
		stream("stash-2-1-each-stage-its-own-mean", "stash", 10, two1, 3),
		stream("stash-1-2-each-stage-its-own-mean", "stash", 10, one2, 3),
		stream("stash-3-1-each-stage-its-own-mean-with-a-tail", "stash", 10, three1, 3),
		stream("vertical-1-2-each-stage-its-own-mean", "vertical", 10, one2, 3),
		stream("vertical-2-1-each-stage-its-own-mean-with-a-tail", "vertical", 11, two1, 3),
		stream("latest-3-1-2-each-stage-its-own-mean-with-a-tail", "latest", 14, three1of, 2, 4),
		stream("stash-3-1-2-each-stage-its-own-mean", "stash", 12, three1of, 2, 4),
		turns("dp-micro-batches-in-turn", "dp", "", [][]int{{0, 1}}),
		turns("dp-three-replicas-in-turn", "dp", "", [][]int{{0, 1, 2}}),
		turns("dp-overlap-sums-in-groups", "dp-overlap", "dp-micro-batches-in-turn", [][]int{{0, 1}, {0, 1}}, 3),
		turns("1f1b-2-2-in-turn", "1f1b", "dp-micro-batches-in-turn", two2, 3),
		turns("chimera-sums-its-two-copies", "chimera", "dp-micro-batches-in-turn", twoWays, mlp4...),
		turns("1f1b-2-1-in-turn", "1f1b", "", two1, 3),
		rows("dp-rows-of-micro-batches", "dp", "", [][]int{{0, 1}}),
		rows("1f1b-2-2-rows", "1f1b", "dp-rows-of-micro-batches", two2, 3),
		rows("zb-h1-2-1-rows", "zb-h1", "", two1, 3),
		rows("pb-1-2-rows", "pb", "", one2, 3),
		rows("afab-3-1-2-rows", "afab", "", three1of, 2, 4),
	}
}

// pipelines returns runs of elastic averaging.
func pipelines() []run {
	elastic := func(name string, n int, edit func(*layout)) run {
		l := layout{Schedule: "elastic", Weights: "elastic", Cuts: []int{3}, Pipelines: n, MicroBatches: 4}
		if edit != nil {
			edit(&l)
		}
		return run{Name: name, Subject: "mlp", leg: leg{layout: l, Steps: 6}}
	}
	return []run{
		elastic("elastic-2-pipelines", 2, nil),
		elastic("elastic-3-pipelines", 3, nil),
		elastic("elastic-3-pipelines-on-three-stages-alpha-0.2", 3, func(l *layout) { l.Cuts, l.Alpha = mlp3, 0.2 }),
		elastic("elastic-in-the-printed-order", 2, func(l *layout) { l.Printed = true }),
	}
}

// limits returns runs with clipping, and with updates that are validated in the next step.
func limits() []run {
	clip := []string{"--clip", "0.4"}
	post := append(clip[:1:1], "0.4", "--post-validate")
	of := func(name, family, like string, flags []string, cuts ...int) run {
		l := leg{layout: layout{Schedule: family, Cuts: cuts}, Steps: 8, Flags: flags}
		return run{Name: name, Subject: "mlp", Like: like, leg: l}
	}
	return []run{
		of("mlp-8-steps-on-one-worker", "single", "", nil),
		of("clip-on-one-worker", "single", "", clip),
		of("clip-pools-the-norm-of-all-stages", "1f1b", "clip-on-one-worker", clip, mlp3...),
		of("post-validated-updates-are-those-that-wait", "zb-h2", "clip-on-one-worker", post, mlp3...),
		of("post-validated-with-room-for-every-norm", "zb-h1", "mlp-8-steps-on-one-worker",
			[]string{"--clip", "1000", "--post-validate"}, mlp3...),
		{Name: "post-validated-over-rows-of-replicas", Subject: "mlp", leg: leg{Steps: 8, Flags: post,
			layout: layout{Schedule: "1f1b", Cuts: []int{3}, On: two2, Rows: true}}},
		{Name: "elastic-clips-each-pipeline", Subject: "mlp", leg: leg{Steps: 6, Flags: clip,
			layout: layout{Schedule: "elastic", Weights: "elastic", Cuts: []int{3}, Pipelines: 2}}},
	}
}
