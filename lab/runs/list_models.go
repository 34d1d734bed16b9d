package runs

// models returns runs of networks with state, randomness, tied parameters, and tensors that bypass stages.
func models() []run {
	of := func(name, subject, like string, l layout) run {
		return run{Name: name, Subject: subject, Like: like, leg: leg{layout: l, Steps: 6}}
	}
	stream := func(weights string, cuts ...int) layout {
		return layout{Schedule: "1f1b-rr", Weights: weights, Cuts: cuts, MicroBatches: 1}
	}
	perSlice := of("batch-norm-over-rows-of-replicas", "convnet", "",
		layout{Schedule: "1f1b", Cuts: []int{5}, On: two1, Rows: true})
	perSlice.Flags = []string{"--batch-norm", "per_slice"}
	return []run{
		of("convnet-on-one-worker", "convnet", "", layout{Schedule: "single"}),
		of("batch-norm-counts-a-micro-batch-once", "convnet", "convnet-on-one-worker",
			layout{Schedule: "1f1b", Cuts: conv3}),
		of("batch-norm-counts-once-where-forwards-are-recomputed", "convnet", "convnet-on-one-worker",
			layout{Schedule: "afab", Cuts: conv3, Recompute: "stage"}),
		of("batch-norm-with-weight-gradients-apart", "convnet", "convnet-on-one-worker",
			layout{Schedule: "zb-h1", Cuts: conv3}),
		of("batch-norm-statistics-are-the-replicas-mean", "convnet", "",
			layout{Schedule: "dp", On: [][]int{{0, 1, 2}}}),
		perSlice,
		of("batch-norm-in-a-stream-under-stash", "convnet", "", stream("stash", conv3...)),
		of("batch-norm-in-a-stream-under-latest", "convnet", "", stream("latest", conv3...)),
		of("batch-norm-in-elastic-pipelines", "convnet", "",
			layout{Schedule: "elastic", Weights: "elastic", Cuts: []int{5}, Pipelines: 2}),

		of("gpt-on-one-worker", "gpt", "", layout{Schedule: "single"}),
		of("tied-weights-add-up-in-layer-order", "gpt", "gpt-on-one-worker", layout{Schedule: "1f1b", Cuts: gpt3}),
		of("dropout-is-the-same-where-forwards-are-recomputed", "gpt", "gpt-on-one-worker",
			layout{Schedule: "pb", Cuts: gpt3, Recompute: "stage"}),
		of("dropout-is-the-same-recomputed-by-two-layers", "gpt", "gpt-on-one-worker",
			layout{Schedule: "1f1b", Cuts: []int{4}, Recompute: "every 2"}),
		of("tied-weights-with-weight-gradients-apart", "gpt", "gpt-on-one-worker",
			layout{Schedule: "zb-v", Cuts: gpt4, On: vee}),
		of("recompute-with-weight-gradients-apart", "gpt", "gpt-on-one-worker",
			layout{Schedule: "zb-h1", Cuts: gpt3, Recompute: "stage"}),
		of("tied-weights-over-rows-of-replicas", "gpt", "",
			layout{Schedule: "1f1b", Cuts: []int{4}, On: one2, Rows: true}),
		of("dropout-in-replicas-in-turn", "gpt", "", layout{Schedule: "dp", On: [][]int{{0, 1}}}),
		of("dropout-in-a-stream-with-recompute", "gpt", "",
			layout{Schedule: "1f1b-rr", Weights: "stash", Cuts: []int{3}, MicroBatches: 2, Recompute: "stage"}),

		of("lstm-on-one-worker", "lstm", "", layout{Schedule: "single"}),
		of("lstm-recomputes-and-cuts-ties", "lstm", "lstm-on-one-worker",
			layout{Schedule: "1f1b", Cuts: lstm3, Recompute: "stage"}),
		of("lstm-with-weight-gradients-apart", "lstm", "lstm-on-one-worker", layout{Schedule: "zb-h2", Cuts: lstm3}),
		of("lstm-in-a-stream", "lstm", "", stream("stash", 2)),

		of("a-tensor-passes-stages-by-on-one-worker", "skip", "", layout{Schedule: "single"}),
		of("a-tensor-passes-stages-by", "skip", "a-tensor-passes-stages-by-on-one-worker",
			layout{Schedule: "1f1b", Cuts: []int{1, 2, 3}}),
		of("a-tensor-passes-stages-by-in-a-stream", "skip", "", stream("vertical", 1, 3)),
	}
}

// resumed returns runs that stop and resume with another plan.
func resumed() []run {
	of := func(name, subject, like string, stop, steps int, first, then layout, flags ...string) run {
		return run{Name: name, Subject: subject, Like: like, leg: leg{layout: first, Steps: stop, Flags: flags},
			Then: &leg{layout: then, Steps: steps, Flags: flags}}
	}
	elastic := func(n int, cuts ...int) layout {
		return layout{Schedule: "elastic", Weights: "elastic", Cuts: cuts, Pipelines: n, MicroBatches: 4}
	}
	stash := func(cuts ...int) layout {
		return layout{Schedule: "1f1b-rr", Weights: "stash", Cuts: cuts, Batch: 8, MicroBatches: 1}
	}
	turns := func(on [][]int, cuts ...int) layout {
		return layout{Schedule: "1f1b-rr", Weights: "stash", Cuts: cuts, On: on, MicroBatches: 1}
	}
	adam := []string{"--optimizer", "adam", "--lr", "0.01", "--lr-warmup", "0"}
	clip := []string{"--clip", "0.4"}
	return []run{
		of("three-stages-go-on-as-one-worker", "mlp", "mlp-on-one-worker", 3, 6,
			layout{Schedule: "1f1b", Cuts: mlp3}, layout{Schedule: "single"}),
		of("one-worker-goes-on-as-a-v", "mlp", "mlp-on-one-worker", 2, 6,
			layout{Schedule: "single"}, layout{Schedule: "zb-v", Cuts: mlp4, On: vee}),
		of("afab-goes-on-as-zb-h1-with-other-cuts", "mlp", "mlp-on-one-worker", 4, 6,
			layout{Schedule: "afab", Cuts: []int{3}}, layout{Schedule: "zb-h1", Cuts: []int{1, 3}}),
		of("clipped-run-goes-on", "mlp", "clip-on-one-worker", 5, 8,
			layout{Schedule: "pb", Cuts: mlp3}, layout{Schedule: "1f1b", Cuts: []int{4}}, clip...),
		of("clipped-run-goes-on-validated-later", "mlp", "clip-on-one-worker", 3, 8,
			layout{Schedule: "1f1b", Cuts: mlp3}, layout{Schedule: "zb-h1", Cuts: mlp3},
			append(clip[:2:2], "--post-validate")...),
		of("two-replicas-go-on-as-three", "mlp", "", 3, 6,
			layout{Schedule: "dp", On: [][]int{{0, 1}}}, layout{Schedule: "dp", On: [][]int{{0, 1, 2}}}),
		of("stream-goes-on-with-fewer-stages", "mlp", "", 5, 11, stash(2, 4), stash(3), "--lr", "0.02"),
		of("adam-goes-on-counting-the-updates-of-a-stage", "skip", "", 4, 8, turns(two1, 3), turns(one2, 2), adam...),
		of("elastic-goes-on-with-other-cuts", "mlp", "elastic-2-pipelines", 3, 6, elastic(2, 3), elastic(2, 2, 4)),
		of("batch-norm-goes-on-with-other-cuts", "convnet", "convnet-on-one-worker", 3, 6,
			layout{Schedule: "1f1b", Cuts: conv3}, layout{Schedule: "zb-h1", Cuts: []int{4}}),
		of("dropout-and-ties-go-on-with-other-cuts", "gpt", "gpt-on-one-worker", 3, 6,
			layout{Schedule: "zb-v", Cuts: gpt4, On: vee}, layout{Schedule: "afab", Cuts: []int{3}, Recompute: "stage"}),
		{Name: "elastic-goes-on-with-a-third-pipeline", Subject: "mlp", leg: leg{layout: elastic(2, 3), Steps: 3},
			Then: &leg{layout: elastic(3, 3), Steps: 6, Flags: []string{"--resume-averaged"}}},
	}
}

// commandLine returns runs that use more flags and more settings of plans. Some of the runs evaluate or save
// checkpoints.
func commandLine() []run {
	return []run{
		{Name: "flags-say-the-plan", Subject: "mlp", Like: "mlp-on-one-worker", leg: leg{Steps: 6,
			Flags: []string{"--workers", "3", "--stages", "3", "--split", "2,4", "--schedule", "1f1b", "--batch", "24",
				"--micro-batches", "6", "--recompute", "none"}}},
		{Name: "program-is-read-from-a-file", Subject: "mlp", Like: "mlp-on-one-worker", leg: leg{Steps: 6,
			Program: []string{"v-half", "--stages", "2", "--micro-batches", "6"},
			Flags:   []string{"--split", "1,3,4", "--batch", "24", "--recompute", "none"}}},
		{Name: "forwards-in-advance", Subject: "mlp", Like: "mlp-on-one-worker", leg: leg{Steps: 6,
			layout: layout{Schedule: "1f1b", Cuts: mlp3}, Flags: []string{"--advance", "2"}}},
		{Name: "warm-up-depths-of-a-plan", Subject: "mlp", Like: "mlp-on-one-worker", leg: leg{Steps: 6,
			layout: layout{Schedule: "1f1b", Cuts: mlp3, Warmup: []int{5, 3, 1}}}},
		{Name: "adam-counts-the-updates-of-a-stage", Subject: "skip", leg: leg{Steps: 7,
			layout: layout{Schedule: "1f1b-rr", Weights: "stash", Cuts: []int{3}, On: two1, MicroBatches: 1},
			Flags:  []string{"--optimizer", "adam", "--lr", "0.01", "--lr-warmup", "0"}}},
		{Name: "rate-follows-its-schedule", Subject: "gpt", leg: leg{Steps: 6,
			layout: layout{Schedule: "1f1b", Cuts: gpt3}, Flags: []string{"--lr-schedule", "cosine"}}},
		{Name: "evaluations-and-saves-change-nothing", Subject: "convnet", Like: "convnet-on-one-worker", leg: leg{Steps: 6,
			layout: layout{Schedule: "1f1b", Cuts: conv3}, Flags: []string{"--save-every", "2", "--eval-every", "3"}}},
		{Name: "a-stream-drains-where-it-saves", Subject: "mlp", leg: leg{Steps: 11, Flags: []string{"--save-every", "4"},
			layout: layout{Schedule: "1f1b-rr", Weights: "stash", Cuts: mlp3, Batch: 8, MicroBatches: 1}}},
	}
}
