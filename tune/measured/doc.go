// Package measured reads measurements on devices. Package tune/calibrate fits descriptions of the devices to them.
//
// Input: a CSV of step times with a row for each run, or a profile of layers with its model; and the cluster that
// describes the devices. Output: a Set with Observations (times, and how a cluster predicts them) and Candidates
// (possible further measurements of the same kind). Errors name line, column and value: missing or repeated columns,
// values that are not numbers or out of range, layouts that the cluster or the model does not allow, and profiles of
// other models or device types.
//
// # Steps
//
// Columns are identified by name, in any order. Required are layers, hidden, heads, seq_len, vocab (a transformer's
// shape), micro_batch, global_batch (samples), precision (cluster.Precisions) and iteration_s (seconds of a step).
// These may be missing or empty, with the default in parentheses: tp, pp, dp (1), schedule (1f1b, or interleaved),
// virtual_stages_per_device (1), recompute (none), sequence_parallel (no), shard (none), dropout (no), tied (yes, for
// Llama no), id. With kv_heads and ffn_hidden the blocks are like Llama's. Other columns are ignored and listed. Lines
// that begin with # are comments. Package tune/shape predicts each row, with Adam's two states. Rows of one layout are
// held out together.
//
// # Layers
//
// A profile gives times of forward and backward for each layer and micro-batch size, which package profile/kernels
// predicts. Layers with equal predictions, like a model's blocks, count as one time: the median of their times. Layers
// that take less than a hundredth of the whole forward or backward are left out: they would weigh as much as others but
// matter little. The times of one micro-batch size are held out together, over all files. If there is only one size,
// the times of one layer are held out together.
package measured
