// fused.cpp: a linear layer together with the element-wise operator behind it, so that its
// output is written once.
//
//   linear_gelu  gelu(x w^T + b), in its exact form gelu(a) = a Phi(a), Hendrycks and Gimpel (2016)
//   linear_add   r + x w^T + b
//
// Phi and phi are the distribution and the density of the standard normal. linear_gelu keeps the derivative
// Phi(a) + a phi(a) instead of a, since it can be calculated along with Phi(a); backward then only
// multiplies. Backward overwrites the derivative with that product, since nobody reads the derivative again.
// The backward of both operators comes in two halves, as millrace::linear's does (split.h).
//
// The fast loops are in native/kernels; without them libtorch's own operators are used.

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <vector>

#include "internal.h"
#include "split.h"

namespace {

using at::Tensor;
using mr::split::Optional;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

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
  if (bias->dim() != 1 || bias->size(0) != w.size(0))
    throw std::invalid_argument("a linear layer takes bias [out]");
  return bias->contiguous();
}

// times_in_place multiplies g by `by`, element by element, and returns the sum of the product's rows.
Tensor times_in_place(Tensor& g, const Tensor& by) {
  Tensor sum;
  if (mr::kernels() != nullptr) sum = mr::kernels()->scale_and_sum(g, by);
  if (sum.defined()) return sum;
  g.mul_(by);
  return mr::split::rows_of(g).sum(0);
}

struct LinearGelu : Function<LinearGelu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w, const Optional& bias) {
    const std::vector<int64_t> sizes = sizes_of(x, w);
    const Tensor b = bias_of(w, bias), rows = mr::split::rows_of(x);
    mr::split::refuse_graph(w, "linear_gelu");
    mr::split::refuse_graph(b, "linear_gelu");
    Tensor y, slope;
    if (mr::kernels() == nullptr || !mr::kernels()->linear_gelu(rows, w, b, y, slope)) {
      const Tensor a = mr::product(rows, w.t(), b);
      slope = at::gelu_backward(at::ones_like(a), a);
      y = at::gelu(a);
    }
    mr::split::save_linear(ctx, x, w, bias);
    ctx->saved_data["slope"] = slope.view(sizes);
    return y.view(sizes);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Tensor g = ctx->saved_data["slope"].toTensor();
    const Tensor by_bias = times_in_place(g, grads[0]);
    return {mr::split::linear_back(ctx, g, by_bias), Tensor(), Tensor()};
  }
};

struct LinearAdd : Function<LinearAdd> {
  static Tensor forward(AutogradContext* ctx, const Tensor& r, const Tensor& x, const Tensor& w,
                        const Optional& bias) {
    const std::vector<int64_t> sizes = sizes_of(x, w);
    const Tensor b = bias_of(w, bias);
    mr::split::refuse_graph(w, "linear_add");
    mr::split::refuse_graph(b, "linear_add");
    if (r.sizes() != at::IntArrayRef(sizes) || r.scalar_type() != x.scalar_type())
      throw std::invalid_argument("linear_add adds a tensor of its output's shape and type");
    const Tensor y = mr::product(mr::split::rows_of(x), w.t(), b, mr::split::rows_of(r).contiguous());
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
        [](const Tensor& r, const Tensor& x, const Tensor& w, const Optional& b) {
          return LinearAdd::apply(r, x, w, b);
        });
}

}  // namespace
