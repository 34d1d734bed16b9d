// Package kernels says what layers take on a described device, kernel by kernel.
//
// In: a layer of a model, the samples of a micro-batch, a device type with cluster.Kernels, a precision. Out: a
// Cost: seconds of the forward and of the two halves of the backward, bytes that tensor-parallel groups sum, bytes
// saved. Refused: precisions that a device type has no peak of, kinds of layers that no group can divide.
// It knows no plan and no micro-batches side by side.
//
// # Kernels
//
// A layer is a list of kernels. One of F operations, B bytes, width w and n rows takes
//
//	t = max( F / (P r(w, n)), B / (M m) ) + launch,   r(w, n) = limit w/(w + half_width) n/(n + half_rows)
//
// P is the peak in the precision, M the memory's bandwidth, m the limit of the kind memory (the roofline of Williams,
// Waterman and Patterson, CACM 52(4), 2009, with an efficiency that depends on size). Of a product of n x k by k x m
// the width is the smaller of k and m, and n are the rows; its two gradients are products of the same size. Of
// attention the width is a head's, and the rows are the positions. A layer takes layer_s more in each pass.
//
// # Bytes
//
// Memory-bound operators count what they read and write, e bytes an element (4, or 2 in 16 bits and in fp8): a norm
// reads and writes its rows (2e), backwards 3e; dropout and residual in one kernel 3e and a byte of mask, apart 5e and
// a byte; an activation 2e, backwards 3e. Scores of attention that is not one kernel pass through memory for both
// products, the softmax and the dropout: 4e, 6e+1 with dropout; backwards 6e, 9e+1. Logits are float32 in the loss:
// they are read and widened, read for their largest and for their sum, and written again as their gradient. Causal
// attention in one kernel computes half of the scores; its backward computes them once more (Dao et al., 2022).
//
// # Tensor-parallel groups (Shoeybi et al., Megatron-LM, 2019, section 3)
//
// Each of t devices has 1/t of the heads, of the hidden width and of the vocabulary. Attention and MLP sum their
// output forward and their input's gradient backward, an embedding its output, a head its input's gradient: each n c e
// bytes among t. Norms, dropouts and residuals are computed by all, or with sequence parallelism by each for 1/t of
// the positions; the sums are then a gather and a scatter of the same bytes (Korthikanti et al., Reducing Activation
// Recomputation in Large Transformer Models, 2022, section 4.2.2).
//
// # What is saved
//
// By Korthikanti et al., equations 1 to 4, for one device: an attention 2e n c for norm and products' input, 4e n c/t
// for queries, keys, values and the output's input, a byte of mask, and (2e + 1) heads positions n/t for scores that
// attention does not compute again; an MLP 2e n c, a byte of mask, 8e n c/t. What a layer reads is its predecessor's
// to save: its own output stands for the norm's input. Costs are of the whole group: t times that. In fp8 what a
// product inside an attention or an MLP reads is kept narrowed, a byte an element, as NVIDIA's Transformer Engine does;
// attention in one kernel keeps its output in 16 bits too, for its own backward.
package kernels
