// fused.cpp: a linear layer together with what follows it element by element, so that its
// output is written once.
//
//   linear_gelu  gelu(x w^T + b), exactly: gelu(a) = a Phi(a), Hendrycks and Gimpel (2016)
//   linear_add   r + x w^T + b
//
// linear_gelu keeps the derivative Phi(a) + a phi(a) instead of a: it costs one more exp
// while a is at hand, and backward is a product. Backward writes that product over
// the derivative, which nobody reads again. Both have the halves of millrace::linear.
//
// The fast loops are for float32 on a CPU; otherwise libtorch's own operators compute.

#include <cmath>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "internal.h"
#include "simd.h"
#include "split.h"

namespace {

using at::Tensor;
using mr::split::Optional;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

bool fast(const Tensor& t) { return t.is_cpu() && t.scalar_type() == at::kFloat; }

// Numbers of elements that are worth a second thread.
constexpr int64_t kGrain = 32768;

// sizes_of is the shape of x w^T, [..., out].
std::vector<int64_t> sizes_of(const Tensor& x, const Tensor& w) {
  if (x.dim() < 1 || w.dim() != 2 || w.size(1) != x.size(-1)) {
    throw std::invalid_argument("a linear layer takes x [..., in] and weight [out, in]");
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = w.size(0);
  return sizes;
}

Tensor bias_of(const Tensor& w, const Optional& bias) {
  if (!bias.has_value() || !bias->defined()) return Tensor();
  if (bias->dim() != 1 || bias->size(0) != w.size(0)) throw std::invalid_argument("a linear layer takes bias [out]");
  return bias->contiguous();
}

// gelu_of writes gelu(x w^T + b) to y and its derivative to slope, while what a product has
// finished is near. b is a row of zeros where there is none.
void gelu_of(const Tensor& x, const Tensor& w, const Tensor& b, Tensor& y, const Tensor& slope) {
  const int64_t columns = y.size(1);
  float *const out = y.data_ptr<float>(), *const by = slope.data_ptr<float>();
  const float* const bias = b.data_ptr<float>();
  mr::gemm::write_product(y, x, w.t(), [&](int64_t row, int64_t last_row, int64_t column, int64_t last_column) {
    mr::simd::widest([&] {
      for (int64_t i = row; i < last_row; ++i) {
        float *const yi = out + i * columns, *const di = by + i * columns;
#pragma omp simd
        for (int64_t j = column; j < last_column; ++j) {
          const float a = yi[j] + bias[j];
          const mr::simd::Normal at = mr::simd::normal(a);
          yi[j] = a * at.below;
          di[j] = at.below + a * at.density;
        }
      }
    });
  });
}

// Rows that are summed together, and then with the other groups.
constexpr int64_t kGroup = 64;

// times_in_place multiplies g by so much and yields the sum of its rows. Rows are added within groups
// and then group by group, so that the bits depend on no number of threads.
Tensor times_in_place(Tensor& g, const Tensor& by) {
  if (!fast(g) || !by.is_contiguous() || g.sizes() != by.sizes() || by.scalar_type() != g.scalar_type()) {
    g.mul_(by);
    return mr::split::rows_of(g).sum(0);
  }
  const int64_t columns = g.size(-1), rows = columns == 0 ? 0 : g.numel() / columns, groups = (rows + kGroup - 1) / kGroup;
  const Tensor sums = at::zeros({groups, columns}, g.options()), total = at::zeros({columns}, g.options());
  float *const to = g.data_ptr<float>(), *const group = sums.data_ptr<float>(), *const all = total.data_ptr<float>();
  const float* const factor = by.data_ptr<float>();
  at::parallel_for(0, groups, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, kGroup * columns)), [&](int64_t from, int64_t last) {
    mr::simd::widest([&] {
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

struct LinearGelu : Function<LinearGelu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w, const Optional& bias) {
    const std::vector<int64_t> sizes = sizes_of(x, w);
    const Tensor b = bias_of(w, bias), rows = mr::split::rows_of(x);
    mr::split::refuse_graph(w, "linear_gelu");
    mr::split::refuse_graph(b, "linear_gelu");
    Tensor y, slope;
    if (fast(x) && fast(w) && (!b.defined() || fast(b))) {
      y = at::empty({rows.size(0), w.size(0)}, x.options());
      slope = at::empty(sizes, x.options());
      gelu_of(rows, w, b.defined() ? b : at::zeros({w.size(0)}, x.options()), y, slope);
    } else {
      const Tensor a = mr::gemm::product(rows, w.t(), b);
      slope = at::gelu_backward(at::ones_like(a), a).view(sizes);
      y = at::gelu(a);
    }
    mr::split::save_linear(ctx, x, w, bias);
    ctx->saved_data["slope"] = slope;
    return y.view(sizes);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Tensor g = ctx->saved_data["slope"].toTensor();
    const Tensor by_bias = times_in_place(g, grads[0]);
    return {mr::split::linear_back(ctx, g, by_bias), Tensor(), Tensor()};
  }
};

struct LinearAdd : Function<LinearAdd> {
  static Tensor forward(AutogradContext* ctx, const Tensor& r, const Tensor& x, const Tensor& w, const Optional& bias) {
    const std::vector<int64_t> sizes = sizes_of(x, w);
    const Tensor b = bias_of(w, bias);
    mr::split::refuse_graph(w, "linear_add");
    mr::split::refuse_graph(b, "linear_add");
    if (r.sizes() != at::IntArrayRef(sizes) || r.scalar_type() != x.scalar_type()) throw std::invalid_argument("linear_add adds a tensor of its output's shape and type");
    const Tensor y = mr::gemm::product(mr::split::rows_of(x), w.t(), b, mr::split::rows_of(r).contiguous());
    mr::split::save_linear(ctx, x, w, bias);
    return y.view(sizes);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {grads[0], mr::split::linear_back(ctx, grads[0]), Tensor(), Tensor()};
  }
};

TORCH_LIBRARY_FRAGMENT(millrace, m) {
  m.def("linear_gelu(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor",
        [](const Tensor& x, const Tensor& w, const Optional& b) { return LinearGelu::apply(x, w, b); });
  m.def("linear_add(Tensor residual, Tensor x, Tensor weight, Tensor? bias=None) -> Tensor",
        [](const Tensor& r, const Tensor& x, const Tensor& w, const Optional& b) { return LinearAdd::apply(r, x, w, b); });
}

}  // namespace
