// offered.h: the kernels of this folder; shim/kernels.h says what each computes.
#pragma once

#include "kernels.h"

namespace mr {

inline bool fast(const Tensor& t) { return t.is_cpu() && t.scalar_type() == at::kFloat; }

Tensor whole_product(const Tensor& a, const Tensor& b, const Tensor& row, const Tensor& rows);
bool sum_product(const Tensor& sum, const Tensor& a, const Tensor& b);
bool linear_gelu(const Tensor& x, const Tensor& w, const Tensor& b, Tensor& y, Tensor& slope);
Tensor scale_and_sum(const Tensor& g, const Tensor& by);
bool layer_norm(const Tensor& x, const Tensor& gain, const Tensor& shift, double eps, Tensor& y, Tensor& mean,
                Tensor& r);
bool layer_norm_back(const Tensor& g, const Tensor& x, const Tensor& mean, const Tensor& r,
                     const Tensor& gain, Tensor& back, Tensor& by_gain, Tensor& by_shift);
Tensor mask(const Tensor& like, at::IntArrayRef shape, int64_t per_row, int64_t key, int64_t first_row,
            int64_t threshold, double keep);
Tensor causal_attention(const Tensor& qkv, int64_t heads, const Tensor& mask);
Tensor max_pool(const Tensor& x, int64_t size);

}  // namespace mr
