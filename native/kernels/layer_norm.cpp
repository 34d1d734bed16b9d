// layer_norm.cpp: layer norm over the last dimension; the formulas are in shim/layer_norm.cpp.
//
// Each row is read from memory once forward and once backward: the loops over it find it in the first-level
// cache. The gradients of gain and shift are summed within groups of 64 rows and then group by group, so that
// their bits do not depend on the number of threads.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "offered.h"
#include "simd.h"

namespace mr {

namespace {

constexpr int64_t kGroup = 64;  // rows

struct Rows {
  int64_t count, width;
  explicit Rows(const Tensor& x) : count(x.size(-1) == 0 ? 0 : x.numel() / x.size(-1)), width(x.size(-1)) {}
  int64_t groups() const { return (count + kGroup - 1) / kGroup; }
};

// each_group calls f with the number of each group, its first row and the row behind its last.
template <class F>
void each_group(const Rows& rows, F f) {
  at::parallel_for(0, rows.groups(),
                   std::max<int64_t>(1, 32768 / (kGroup * std::max<int64_t>(1, rows.width))),
                   [&](int64_t from, int64_t to) {
                     simd::widest([&] {
                       for (int64_t g = from; g < to; ++g)
                         f(g, g * kGroup, std::min((g + 1) * kGroup, rows.count));
                     });
                   });
}

// normalise writes one row and its mean, and returns 1 / sqrt(variance + eps). It squares differences from
// the mean: the mean of x^2 less the square of the mean would lose digits if the mean is large.
inline float normalise(const float* x, int64_t n, const float* gain, const float* shift, float eps, float* y,
                       float* mean) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += x[j];
  const float m = sum / static_cast<float>(n);
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t j = 0; j < n; ++j) squares += (x[j] - m) * (x[j] - m);
  const float r = 1 / std::sqrt(squares / static_cast<float>(n) + eps);
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - m) * r * gain[j] + shift[j];
  *mean = m;
  return r;
}

// go_back writes the gradient of one row x and adds its share to the gradients of gain and shift.
inline void go_back(const float* g, const float* x, int64_t n, const float* gain, float mean, float r,
                    float* back, float* by_gain, float* by_shift) {
  float plain = 0, along = 0;
#pragma omp simd reduction(+ : plain, along)
  for (int64_t j = 0; j < n; ++j) {
    const float h = (x[j] - mean) * r, scaled = g[j] * gain[j];
    plain += scaled;
    along += scaled * h;
    by_gain[j] += g[j] * h;
    by_shift[j] += g[j];
  }
  plain /= static_cast<float>(n);
  along /= static_cast<float>(n);
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) back[j] = r * (g[j] * gain[j] - plain - (x[j] - mean) * r * along);
}

bool plain(const Tensor& t) { return fast(t) && t.is_contiguous(); }

}  // namespace

bool layer_norm(const Tensor& x, const Tensor& gain, const Tensor& shift, double eps, Tensor& y, Tensor& mean,
                Tensor& r) {
  if (!plain(x) || !plain(gain) || !plain(shift)) return false;
  const Rows rows(x);
  y = at::empty_like(x);
  mean = at::empty({rows.count}, x.options());
  r = at::empty({rows.count}, x.options());
  const float *const in = x.data_ptr<float>(), *const a = gain.data_ptr<float>(),
                     *const b = shift.data_ptr<float>();
  float *const out = y.data_ptr<float>(), *const means = mean.data_ptr<float>(),
               *const roots = r.data_ptr<float>();
  each_group(rows, [&](int64_t, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      roots[i] = normalise(in + i * rows.width, rows.width, a, b, static_cast<float>(eps),
                           out + i * rows.width, means + i);
    }
  });
  return true;
}

bool layer_norm_back(const Tensor& g, const Tensor& x, const Tensor& mean, const Tensor& r,
                     const Tensor& gain, Tensor& back, Tensor& by_gain, Tensor& by_shift) {
  if (!plain(g) || !plain(x) || !plain(gain)) return false;
  back = at::empty_like(x);
  by_gain = at::zeros_like(gain);
  by_shift = at::zeros_like(gain);
  const Rows rows(x);
  const int64_t n = rows.width;
  const float *const grad = g.data_ptr<float>(), *const in = x.data_ptr<float>(),
                     *const a = gain.data_ptr<float>();
  const float *const means = mean.data_ptr<float>(), *const roots = r.data_ptr<float>();
  float* const out = back.data_ptr<float>();
  std::vector<float> sums(2 * rows.groups() * n);  // for each group the gradient of gain, then of shift
  each_group(rows, [&](int64_t group, int64_t from, int64_t to) {
    float* const so = sums.data() + 2 * group * n;
    for (int64_t i = from; i < to; ++i)
      go_back(grad + i * n, in + i * n, n, a, means[i], roots[i], out + i * n, so, so + n);
  });
  float *const gains = by_gain.data_ptr<float>(), *const shifts = by_shift.data_ptr<float>();
  for (int64_t group = 0; group < rows.groups(); ++group) {
    const float* const so = sums.data() + 2 * group * n;
    for (int64_t j = 0; j < n; ++j) {
      gains[j] += so[j];
      shifts[j] += so[n + j];
    }
  }
  return true;
}

}  // namespace mr
