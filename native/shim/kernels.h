// kernels.h: what native/kernels computes in place of libtorch's own operators.
//
// The library works without kernels. A kernel returns an undefined tensor, or false, for tensors that it
// was not written for. Then, and when there are no kernels at all, libtorch's operators compute
// the same formula. These things differ without kernels:
//   - the order in which sums are taken, and so the last bits. With kernels the bits of a row do not depend
//     on other rows or on the number of threads. libtorch's BLAS promises neither, so a replica's slice of a
//     micro-batch may have other bits than in the whole. Whole micro-batches have the same bits under every
//     schedule in either case.
//   - what is kept for a backward: libtorch keeps the scores of attention and their graph, and 64-bit
//     positions for max_pool
//   - time
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mr {

using at::Tensor;

struct Kernels {
  const char* (*name)();  // the vector instructions that the products use on this processor

  // a b, plus row in every row, plus the matrix rows; either may be undefined.
  Tensor (*product)(const Tensor& a, const Tensor& b, const Tensor& row, const Tensor& rows);
  // sum += a b, adding the terms of the product to sum.
  bool (*add_product)(const Tensor& sum, const Tensor& a, const Tensor& b);
  // y = gelu(a) and slope = the derivative of gelu at a, for a = x w^T + b. b may be undefined.
  bool (*linear_gelu)(const Tensor& x, const Tensor& w, const Tensor& b, Tensor& y, Tensor& slope);
  // g *= by; the result is the sum of g's rows.
  Tensor (*scale_and_sum)(const Tensor& g, const Tensor& by);
  bool (*layer_norm)(const Tensor& x, const Tensor& gain, const Tensor& shift, double eps, Tensor& y,
                     Tensor& mean, Tensor& r);
  bool (*layer_norm_back)(const Tensor& g, const Tensor& x, const Tensor& mean, const Tensor& r,
                          const Tensor& gain, Tensor& back, Tensor& by_gain, Tensor& by_shift);
  Tensor (*mask)(const Tensor& like, at::IntArrayRef shape, int64_t per_row, int64_t key, int64_t first_row,
                 int64_t threshold, double keep);
  // These two are whole operators, their backward included.
  Tensor (*causal_attention)(const Tensor& qkv, int64_t heads, const Tensor& mask);
  Tensor (*max_pool)(const Tensor& x, int64_t size);
};

// offer is called while the library is loaded, once, by the kernels linked into it.
void offer(const Kernels* kernels);

// kernels is what was offered; it is null if nothing was, or if MILLRACE_KERNELS is "none".
const Kernels* kernels();

// product and add_product compute Kernels' formulas of these names, by kernels where they can and by libtorch
// otherwise.
Tensor product(const Tensor& a, const Tensor& b, const Tensor& row = {}, const Tensor& rows = {});
void add_product(Tensor& sum, const Tensor& a, const Tensor& b);

}  // namespace mr
