// kernels.h: what native/kernels computes in place of libtorch's own operators.
//
// The door needs none of it. A hook answers with an undefined tensor, or false, to tensors that it
// was not written for, and then, as where there are no kernels at all, libtorch's operators compute
// the same formula. Without kernels differ:
//   - the order in which sums are taken, so the last bits. With kernels a row's bits depend on no other
//     row and on no number of threads; libtorch's BLAS promises neither, so a replica's slice of a
//     micro-batch need not have the bits of the whole. Whole micro-batches have the same bits under
//     every schedule either way.
//   - what is held for a backward: the scores of attention and their graph, and 64-bit places of max_pool
//   - time
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mr {

using at::Tensor;

struct Kernels {
  const char* (*name)();  // the vectors they use on this processor

  // a b, plus a row and plus a matrix, each undefined for none.
  Tensor (*product)(const Tensor& a, const Tensor& b, const Tensor& row, const Tensor& rows);
  // sum += a b, term after term.
  bool (*add_product)(const Tensor& sum, const Tensor& a, const Tensor& b);
  // y = gelu(x w^T + b), and slope the derivative of gelu there. b may be undefined.
  bool (*linear_gelu)(const Tensor& x, const Tensor& w, const Tensor& b, Tensor& y, Tensor& slope);
  // g *= by; the result is the sum of g's rows.
  Tensor (*scale_and_sum)(const Tensor& g, const Tensor& by);
  bool (*layer_norm)(const Tensor& x, const Tensor& gain, const Tensor& shift, double eps, Tensor& y,
                     Tensor& mean, Tensor& r);
  bool (*layer_norm_back)(const Tensor& g, const Tensor& x, const Tensor& mean, const Tensor& r,
                          const Tensor& gain, Tensor& back, Tensor& by_gain, Tensor& by_shift);
  Tensor (*mask)(const Tensor& like, at::IntArrayRef shape, int64_t per_row, int64_t key, int64_t first_row,
                 int64_t threshold, double keep);
  // Whole operators, their backward included.
  Tensor (*causal_attention)(const Tensor& qkv, int64_t heads, const Tensor& mask);
  Tensor (*max_pool)(const Tensor& x, int64_t size);
};

// offer is called while the library is loaded, once, by the kernels linked into it.
void offer(const Kernels* kernels);

// kernels is what was offered; null where nothing was, and where MILLRACE_KERNELS is "none".
const Kernels* kernels();

// The same formulas, by kernels where they fit and by libtorch otherwise.
Tensor product(const Tensor& a, const Tensor& b, const Tensor& row = {}, const Tensor& rows = {});
void add_product(Tensor& sum, const Tensor& a, const Tensor& b);

}  // namespace mr
