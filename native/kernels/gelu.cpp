// gelu.cpp: a linear layer with gelu, and the element-wise part of its backward.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "gemm.h"
#include "offered.h"
#include "simd.h"

namespace mr {

namespace {

// kGrain is the least number of elements that is worth another thread.
constexpr int64_t kGrain = 32768;

// gelu_of writes gelu(a) to y and its derivative at a to slope, for a = x w^T + b. Each part of the product
// is taken while it is still in the cache. The caller passes zeros for b where the layer has no bias.
void gelu_of(const Tensor& x, const Tensor& w, const Tensor& b, Tensor& y, const Tensor& slope) {
  const int64_t columns = y.size(1);
  float *const out = y.data_ptr<float>(), *const by = slope.data_ptr<float>();
  const float* const bias = b.data_ptr<float>();
  gemm::write_product(y, x, w.t(), [&](int64_t row, int64_t last_row, int64_t column, int64_t last_column) {
    simd::widest([&] {
      for (int64_t i = row; i < last_row; ++i) {
        float *const yi = out + i * columns, *const di = by + i * columns;
#pragma omp simd
        for (int64_t j = column; j < last_column; ++j) {
          const float a = yi[j] + bias[j];
          const simd::Normal at = simd::normal(a);
          yi[j] = a * at.below;
          di[j] = at.below + a * at.density;
        }
      }
    });
  });
}

// kGroup is how many rows are summed as one group; then the sums of the groups are added.
constexpr int64_t kGroup = 64;

}  // namespace

bool linear_gelu(const Tensor& x, const Tensor& w, const Tensor& b, Tensor& y, Tensor& slope) {
  if (!fast(x) || !fast(w) || (b.defined() && !fast(b))) return false;
  y = at::empty({x.size(0), w.size(0)}, x.options());
  slope = at::empty_like(y);
  gelu_of(x, w, b.defined() ? b : at::zeros({w.size(0)}, x.options()), y, slope);
  return true;
}

// Rows are added within groups and then group by group, so that the bits do not depend on the number of
// threads.
Tensor scale_and_sum(const Tensor& g, const Tensor& by) {
  if (!fast(g) || !g.is_contiguous() || !fast(by) || !by.is_contiguous() || g.sizes() != by.sizes())
    return {};
  const int64_t columns = g.size(-1), rows = columns == 0 ? 0 : g.numel() / columns,
                groups = (rows + kGroup - 1) / kGroup;
  const Tensor sums = at::zeros({groups, columns}, g.options()), total = at::zeros({columns}, g.options());
  float *const to = g.data_ptr<float>(), *const group = sums.data_ptr<float>(),
               *const all = total.data_ptr<float>();
  const float* const factor = by.data_ptr<float>();
  at::parallel_for(0, groups, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, kGroup * columns)),
                   [&](int64_t from, int64_t last) {
                     simd::widest([&] {
                       for (int64_t i = from * kGroup; i < std::min(last * kGroup, rows); ++i) {
                         float *const row = to + i * columns, *const sum = group + i / kGroup * columns;
                         const float* const f = factor + i * columns;
#pragma omp simd
                         for (int64_t j = 0; j < columns; ++j) {
                           const float product = row[j] * f[j];
                           row[j] = product;
                           sum[j] += product;
                         }
                       }
                     });
                   });
  for (int64_t i = 0; i < groups; ++i) {
    for (int64_t j = 0; j < columns; ++j) all[j] += group[i * columns + j];
  }
  return total;
}

}  // namespace mr
