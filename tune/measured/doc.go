// Package measured reads what was measured on devices, for package tune/calibrate to fit descriptions to.
//
// In: a CSV of step times, a row for each run, or a profile of layers with the model that it is of; and the cluster
// that describes the devices. Out: a Set: Observations, which are times and how a cluster predicts them, and
// Candidates, the measurements of the same kind that could be made next. Refused, by line, column and value: columns
// that are missing or stand there twice, values that are no numbers or out of range, layouts that the cluster or the
// model does not admit, profiles of other models or device types.
//
// # Steps
//
// Columns are by name, in any order. Needed are layers, hidden, heads, seq_len, vocab (a transformer's shape),
// micro_batch, global_batch (samples), precision (cluster.Precisions) and iteration_s (seconds of a step). These may be
// left out, or empty: tp, pp, dp (1), schedule (1f1b, or interleaved), virtual_stages_per_device (1), recompute (none),
// sequence_parallel (no), shard (none), kv_heads and ffn_hidden (given: Llama's kind of block), dropout (no), tied
// (yes, of Llama no), id. Other columns are not read, and named. Lines that begin with # are comments. A row is
// predicted by package tune/shape, with Adam's two states; rows of one layout are held out together.
//
// # Layers
//
// Of a profile forward and backward of each layer and micro-batch size are times that package profile/kernels predicts;
// of layers that it predicts alike, like a model's blocks, their median is one time. Layers that take less than a
// hundredth of their pass are left out: they would weigh as much as others, and decide nothing. Times of one
// micro-batch size are held out together, of whatever file; of one size alone, those of one layer.
package measured
