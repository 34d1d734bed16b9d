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

// each_row runs f on ranges of rows of so many columns.
template <class F>
void each_row(int64_t rows, int64_t columns, F f) {
  at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, columns)), f);
}

// without_bias is x w^T of shape [..., out].
Tensor without_bias(const Tensor& x, const Tensor& w) {
  if (x.dim() < 1 || w.dim() != 2 || w.size(1) != x.size(-1)) {
    throw std::invalid_argument("a linear layer takes x [..., in] and weight [out, in]");
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = w.size(0);
  return mr::gemm::product(mr::split::rows_of(x), w.t()).view(sizes);
}

Tensor bias_of(const Tensor& w, const Optional& bias) {
  if (!bias.has_value() || !bias->defined()) return Tensor();
  if (bias->dim() != 1 || bias->size(0) != w.size(0)) throw std::invalid_argument("a linear layer takes bias [out]");
  return bias->contiguous();
}

// gelu_in_place turns a + b into gelu(a + b) and yields the derivative there.
Tensor gelu_in_place(Tensor& a, const Tensor& b) {
  if (!fast(a)) {
    if (b.defined()) a.add_(b);
    const Tensor slope = at::gelu_backward(at::ones_like(a), a);
    a = at::gelu(a);
    return slope;
  }
  const Tensor slope = at::empty_like(a);
  const int64_t columns = a.size(-1), rows = columns == 0 ? 0 : a.numel() / columns;
  const Tensor none = b.defined() ? b : at::zeros({columns}, a.options());
  float *const y = a.data_ptr<float>(), *const d = slope.data_ptr<float>();
  const float* const bias = none.data_ptr<float>();
  each_row(rows, columns, [&](int64_t from, int64_t to) {
    mr::simd::widest([&] {
      for (int64_t i = from; i < to; ++i) {
        float *const yi = y + i * columns, *const di = d + i * columns;
#pragma omp simd
        for (int64_t j = 0; j < columns; ++j) {
          const float x = yi[j] + bias[j];
          const float below = 0.5f + 0.5f * mr::simd::erf(x * 0.707106781f);
          yi[j] = x * below;
          di[j] = below + x * 0.398942280f * mr::simd::exp(-0.5f * x * x);
        }
      }
    });
  });
  return slope;
}

struct LinearGelu : Function<LinearGelu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w, const Optional& bias) {
    const Tensor b = bias_of(w, bias);
    mr::split::refuse_graph(w, "linear_gelu");
    mr::split::refuse_graph(b, "linear_gelu");
    Tensor y = without_bias(x, w);
    const Tensor slope = gelu_in_place(y, b);
    mr::split::save_linear(ctx, x, w, bias);
    ctx->saved_data["slope"] = slope;
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Tensor g = ctx->saved_data["slope"].toTensor();
    g.mul_(grads[0]);
    return {mr::split::linear_back(ctx, g), Tensor(), Tensor()};
  }
};

// add_in_place adds r and the row b to y.
void add_in_place(Tensor& y, const Tensor& r, const Tensor& b) {
  if (!fast(y) || !fast(r) || !b.defined()) {
    if (b.defined()) y.add_(b);
    y.add_(r);
    return;
  }
  const int64_t columns = y.size(-1), rows = columns == 0 ? 0 : y.numel() / columns;
  float* const to_row = y.data_ptr<float>();
  const float *const other = r.data_ptr<float>(), *const bias = b.data_ptr<float>();
  each_row(rows, columns, [&](int64_t from, int64_t to) {
    mr::simd::widest([&] {
      for (int64_t i = from; i < to; ++i) {
#pragma omp simd
        for (int64_t j = 0; j < columns; ++j) to_row[i * columns + j] += bias[j] + other[i * columns + j];
      }
    });
  });
}

struct LinearAdd : Function<LinearAdd> {
  static Tensor forward(AutogradContext* ctx, const Tensor& r, const Tensor& x, const Tensor& w, const Optional& bias) {
    const Tensor b = bias_of(w, bias);
    mr::split::refuse_graph(w, "linear_add");
    mr::split::refuse_graph(b, "linear_add");
    Tensor y = without_bias(x, w);
    if (r.sizes() != y.sizes() || r.scalar_type() != y.scalar_type()) throw std::invalid_argument("linear_add adds a tensor of its output's shape and type");
    add_in_place(y, r.contiguous(), b);
    mr::split::save_linear(ctx, x, w, bias);
    return y;
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
