// pool.cpp: max pooling over square windows that do not overlap.
//
// libtorch's max pooling keeps its input and a 64-bit position for each window, and goes element by
// element. This one keeps its input only, which the layer before it keeps anyway, and searches the largest
// elements again in its backward. As in libtorch, the first of several equal elements counts as the largest,
// and NaN as larger than every number. Rows and columns that fill no window are left out.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstring>

#include "offered.h"
#include "simd.h"

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct Planes {
  int64_t count, height, width, size;
  int64_t rows() const { return height / size; }
  int64_t columns() const { return width / size; }
};

Planes planes_of(at::IntArrayRef shape, int64_t size) {
  return {shape[0] * shape[1], shape[2], shape[3], size};
}

// better says whether v replaces the best of the elements before it.
inline bool better(float v, float best) { return (v > best) | (v != v); }

// largest writes the largest element of each window of one row of windows.
inline void largest(const float* x, const Planes& p, float* y) {
  for (int64_t j = 0; j < p.columns(); ++j) {
    float best = x[j * p.size];
    for (int64_t r = 0; r < p.size; ++r) {
      for (int64_t c = 0; c < p.size; ++c) {
        const float v = x[r * p.width + j * p.size + c];
        best = better(v, best) ? v : best;
      }
    }
    y[j] = best;
  }
}

// spread gives each window's gradient to its largest element and zero to the others.
inline void spread(const float* x, const float* g, const Planes& p, float* back) {
  for (int64_t j = 0; j < p.columns(); ++j) {
    int64_t place = j * p.size;
    for (int64_t r = 0; r < p.size; ++r) {
      for (int64_t c = 0; c < p.size; ++c) {
        const int64_t at = r * p.width + j * p.size + c;
        place = better(x[at], x[place]) ? at : place;
        back[at] = 0;
      }
    }
    back[place] = g[j];
  }
}

// largest_of_four and spread_over_four do the same in vectors for windows of two by two, the most common
// ones.
inline void largest_of_four(const float* x, int64_t width, int64_t columns, float* y) {
  const float* below = x + width;
#pragma omp simd
  for (int64_t j = 0; j < columns; ++j) {
    float best = x[2 * j];
    best = better(x[2 * j + 1], best) ? x[2 * j + 1] : best;
    best = better(below[2 * j], best) ? below[2 * j] : best;
    y[j] = better(below[2 * j + 1], best) ? below[2 * j + 1] : best;
  }
}

// where is v if yes is 1, and 0 if yes is 0. It has no branch, so that the compiler can vectorise the loop.
inline float where(uint32_t yes, float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  bits &= 0u - yes;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

inline void spread_over_four(const float* x, const float* g, int64_t width, int64_t columns, float* back) {
  const float* below = x + width;
  float* back_below = back + width;
#pragma omp simd
  for (int64_t j = 0; j < columns; ++j) {
    const float a = x[2 * j], b = x[2 * j + 1], c = below[2 * j], d = below[2 * j + 1];
    const uint32_t second = better(b, a);
    const float upper = second ? b : a;
    const uint32_t third = better(c, upper);
    const float three = third ? c : upper;
    const uint32_t fourth = better(d, three), early = (1 - third) & (1 - fourth);
    back[2 * j] = where(early & (1 - second), g[j]);
    back[2 * j + 1] = where(early & second, g[j]);
    back_below[2 * j] = where(third & (1 - fourth), g[j]);
    back_below[2 * j + 1] = where(fourth, g[j]);
  }
}

// each_plane calls f with the number of each plane.
template <class F>
void each_plane(const Planes& p, F f) {
  const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, p.height * p.width));
  at::parallel_for(0, p.count, grain, [&](int64_t from, int64_t to) {
    mr::simd::widest([&] {
      for (int64_t i = from; i < to; ++i) f(i);
    });
  });
}

struct MaxPool : Function<MaxPool> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, int64_t size) {
    const Planes p = planes_of(x.sizes(), size);
    const Tensor y = at::empty({x.size(0), x.size(1), p.rows(), p.columns()}, x.options());
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    each_plane(p, [&](int64_t i) {
      for (int64_t r = 0; r < p.rows(); ++r) {
        const float* in = from + (i * p.height + r * size) * p.width;
        const int64_t out = (i * p.rows() + r) * p.columns();
        if (size == 2) {
          largest_of_four(in, p.width, p.columns(), to + out);
        } else {
          largest(in, p, to + out);
        }
      }
    });
    ctx->save_for_backward({x});
    ctx->saved_data["size"] = size;
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor g = grads[0].contiguous(), x = ctx->get_saved_variables()[0];
    const int64_t size = ctx->saved_data["size"].toInt();
    const Planes p = planes_of(x.sizes(), size);
    const Tensor back = at::empty_like(x);
    const float *const read = x.data_ptr<float>(), *const from = g.data_ptr<float>();
    float* to = back.data_ptr<float>();
    each_plane(p, [&](int64_t i) {
      for (int64_t r = 0; r < p.rows(); ++r) {
        const float* grad = from + (i * p.rows() + r) * p.columns();
        const int64_t at = (i * p.height + r * size) * p.width;
        if (size == 2) {
          spread_over_four(read + at, grad, p.width, p.columns(), to + at);
        } else {
          spread(read + at, grad, p, to + at);
        }
      }
      const int64_t whole = p.columns() * size;
      for (int64_t j = 0; whole < p.width && j < p.rows() * size; ++j) {
        std::fill(to + (i * p.height + j) * p.width + whole, to + (i * p.height + j + 1) * p.width, 0.0f);
      }
      for (int64_t j = (i * p.height + p.rows() * size) * p.width; j < (i + 1) * p.height * p.width; ++j)
        to[j] = 0;
    });
    return {back, Tensor()};
  }
};

}  // namespace

Tensor mr::max_pool(const Tensor& x, int64_t size) {
  if (!fast(x) || size > 15) return {};
  return MaxPool::apply(x.contiguous(), size);
}
