// mask.cpp: dropout masks whose bits are calculated from each element's position; engine.Mask says how.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "mix.h"
#include "offered.h"
#include "simd.h"

namespace mr {

namespace {

template <class T>
void fill(T* row, int64_t n, uint64_t key, uint64_t threshold, T keep) {
  const T choice[2] = {0, keep};
  const int64_t whole = n / 4;
#pragma omp simd
  for (int64_t w = 0; w < whole; ++w) {
    const uint64_t word = mix(key + kGolden * static_cast<uint64_t>(w + 1));
    for (int k = 0; k < 4; ++k) row[4 * w + k] = choice[(word >> (16 * k) & 0xffff) >= threshold];
  }
  if (whole * 4 == n) return;
  const uint64_t word = mix(key + kGolden * static_cast<uint64_t>(whole + 1));
  for (int64_t i = whole * 4; i < n; ++i)
    row[i] = choice[(word >> (16 * (i - whole * 4)) & 0xffff) >= threshold];
}

template <class T>
void fill_rows(const Tensor& m, int64_t per_row, int64_t key, int64_t first_row, int64_t threshold,
               double keep) {
  T* const at = m.data_ptr<T>();
  at::parallel_for(
      0, m.size(0), std::max<int64_t>(1, 32768 / std::max<int64_t>(1, per_row)),
      [&](int64_t from, int64_t to) {
        simd::widest([&] {
          for (int64_t r = from; r < to; ++r) {
            const uint64_t of_row =
                mix(static_cast<uint64_t>(key) + kGolden * static_cast<uint64_t>(first_row + r + 1));
            fill(at + r * per_row, per_row, of_row, static_cast<uint64_t>(threshold), static_cast<T>(keep));
          }
        });
      });
}

}  // namespace

Tensor mask(const Tensor& like, at::IntArrayRef shape, int64_t per_row, int64_t key, int64_t first_row,
            int64_t threshold, double keep) {
  const bool single = like.scalar_type() == at::kFloat;
  if (!like.is_cpu() || (!single && like.scalar_type() != at::kDouble)) return {};
  const Tensor m = at::empty(shape, like.options());
  if (single) {
    fill_rows<float>(m, per_row, key, first_row, threshold, keep);
  } else {
    fill_rows<double>(m, per_row, key, first_row, threshold, keep);
  }
  return m;
}

}  // namespace mr
