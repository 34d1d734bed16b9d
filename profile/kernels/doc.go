// Package kernels computes the time and memory of layers on a described device, kernel by kernel.
//
// Input: a layer of a model, the samples of a micro-batch, a device type with cluster.Kernels, a precision. Output: a
// Cost: seconds of the forward and of the two halves of the backward, bytes that tensor-parallel groups sum, bytes
// saved. Errors: device types without kernels or a memory bandwidth, precisions for which they have no peak, and kinds
// of layers that a group cannot divide. The package knows no plan, and treats each micro-batch by itself.
//
// # Kernels
//
// A layer is a list of kernels. A kernel of F operations, B bytes, width w and n rows takes
//
//	t = max( F / (P r(w, n)), B / (M u) ) + launch,   r(w, n) = limit w/(w + half_width) n/(n + half_rows)
//
// P is the peak in the precision, M the memory's bandwidth, and u the type's limit for memory-bound kernels. This is
// the roofline of Williams, Waterman and Patterson (CACM 52(4), 2009), with an efficiency that depends on size. For a
// product of n x k by k x j the width is the smaller of k and j, and n is the rows; its two gradients are products of
// the same size. For attention the width is the width of a head, and the rows are the positions. Each pass of a layer
// takes an additional time layer_s.
//
// # Bytes
//
// A memory-bound operator moves the bytes that it reads and writes, e bytes per element (4, or 2 in 16 bits and fp8). A
// norm reads and writes its rows (2e), and moves 3e in its backward. Dropout and residual take 3e and a byte of mask in
// one kernel, and 5e and a byte in two. An activation takes 2e, and 3e in its backward. If attention is not one kernel,
// its scores pass through memory for both products, the softmax and the dropout. That takes 4e, or 6e+1 with dropout;
// in the backward 6e, or 9e+1. Without fused kernels (cluster.Kernels.Fused), scores, gated activations, RMS norms,
// rotations and the loss take more kernels and more bytes. Logits are float32 in the loss. They are read and widened,
// read for their maximum and for their sum, and written again as their gradient. A weight's gradient is added to its
// sum over micro-batches, which is in 32 bits: 8 bytes per element in the product itself, as Megatron-LM's fused
// kernels do (wgrad_gemm_accum_fp32). In 16 bits without fused kernels the product writes 2 bytes, and another kernel
// moves 10 (nanotron, optim/gradient_accumulator.py). Causal attention in one kernel computes half of the scores; its
// backward computes them once more (Dao et al., 2022).
//
// # Tensor-parallel groups (Shoeybi et al., Megatron-LM, 2019, section 3)
//
// Each of t devices has 1/t of the heads, of the hidden width and of the vocabulary. Attention and MLP sum their output
// in the forward and their input's gradient in the backward. An embedding sums its output, and a head its input's
// gradient. Each of these sums is of n c e bytes among t devices, for n rows of width c. Norms, dropouts and residuals
// are computed by every device in full. With sequence parallelism each device computes them for 1/t of the positions,
// and the sums become a gather and a scatter of the same bytes (Korthikanti et al., Reducing Activation Recomputation
// in Large Transformer Models, 2022, section 4.2.2).
//
// # What is saved
//
// The sizes follow Korthikanti et al., equations 1 to 4, for one device. An attention saves 2e n c for the norm and the
// products' input, 4e n c/t for queries, keys, values and the output's input, and with dropout a byte of mask. For
// scores it saves e bytes, or 2e + 1 with dropout, times heads x positions x n / t, unless attention recomputes them.
// An MLP of four times the width saves 2e n c, 8e n c/t, and with dropout a byte of mask. A layer's input is saved by
// its predecessor, so the layer counts its own output in place of the norm's input. Costs are for the whole group: t
// times the bytes of one device. In fp8 the inputs of products inside an attention or an MLP are kept in one byte per
// element, as NVIDIA's Transformer Engine does. Attention in one kernel also keeps its output in 16 bits, for its own
// backward.
package kernels
