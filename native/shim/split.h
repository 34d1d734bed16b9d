// split.h: what operators whose backward comes in two halves share.
//
// The first half is the gradient of an operator's input, which the autograd node returns.
// The second half, the gradients of its weights, is passed to weights_half, which computes it
// at once or, inside mr_backward_input, queues it.

#pragma once

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "kernels.h"

namespace mr::split {

using at::Tensor;
using Optional = decltype(std::declval<const c10::IValue&>().toOptional<Tensor>());

void weights_half(std::function<void()> f);

// takes says whether the weight is a leaf that requires a gradient. These operators compute gradients for
// such weights only.
inline bool takes(const Tensor& w) { return w.defined() && w.requires_grad() && w.is_leaf(); }

// wants says whether any of the weights takes a gradient; if none does, there is no second half.
template <typename... Weights>
bool wants(const Weights&... w) {
  return (takes(w) || ...);
}

inline void refuse_graph(const Tensor& w, const char* op) {
  if (w.defined() && w.requires_grad() && !w.is_leaf()) {
    throw std::invalid_argument(std::string(op) + " takes its weights as leaves; this one was computed");
  }
}

// gather adds g to the leaf's gradient, or makes g its gradient, so nobody else may use g.
inline void gather(const Tensor& leaf, Tensor g) {
  Tensor& sum = const_cast<Tensor&>(leaf).mutable_grad();
  if (sum.defined()) {
    sum.add_(g);
  } else {
    sum = std::move(g);
  }
}

// gather_product adds a b to the leaf's gradient. Kernels add the product's terms to the gradient so far,
// which can give other bits than adding a finished product.
inline void gather_product(const Tensor& leaf, const Tensor& a, const Tensor& b) {
  Tensor& sum = const_cast<Tensor&>(leaf).mutable_grad();
  if (sum.defined()) {
    mr::add_product(sum, a, b);
  } else {
    sum = mr::product(a, b);
  }
}

// kept is the first tensor that a forward saved, detached from its history. Otherwise a half that is left for
// later would keep the whole graph of the layers before alive.
Tensor kept(torch::autograd::AutogradContext* ctx);

// rows_of is t as a matrix whose rows are t's last dimension.
inline Tensor rows_of(const Tensor& t) { return t.dim() == 2 ? t : t.reshape({-1, t.size(-1)}); }

// save_linear keeps what the backward of x w^T + b needs. linear_back returns the gradient of x, undefined if
// x requires none, and passes the second half to weights_half. by_bias is the gradient of the bias, if the
// caller has it already; otherwise linear_back calculates it from grad.
void save_linear(torch::autograd::AutogradContext* ctx, const Tensor& x, const Tensor& w,
                 const Optional& bias);
Tensor linear_back(torch::autograd::AutogradContext* ctx, const Tensor& grad, const Tensor& by_bias = {});

}  // namespace mr::split
