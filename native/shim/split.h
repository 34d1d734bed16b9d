// split.h: what operators whose backward comes in halves share.
//
// The first half is the gradient of what an operator read and is the autograd node's
// answer. The second, the gradients of its weights, is handed to weights_half, which does it
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

// takes says whether the weight is a leaf that wants a gradient: only those are gathered
// by these operators. Through any other, autograd goes on.
inline bool takes(const Tensor& w) { return w.defined() && w.requires_grad() && w.is_leaf(); }

// wants says whether any of the weights takes a gradient: where none does there is no second half.
template <typename... Weights>
bool wants(const Weights&... w) {
  return (takes(w) || ...);
}

inline void refuse_graph(const Tensor& w, const char* op) {
  if (w.defined() && w.requires_grad() && !w.is_leaf()) {
    throw std::invalid_argument(std::string(op) + " takes its weights as leaves; this one was computed");
  }
}

// gather adds g to what the leaf has; g is nobody else's.
inline void gather(const Tensor& leaf, Tensor g) {
  Tensor& sum = const_cast<Tensor&>(leaf).mutable_grad();
  if (sum.defined()) {
    sum.add_(g);
  } else {
    sum = std::move(g);
  }
}

// gather_product adds a b to what the leaf has. Kernels add the product's terms one after the other
// to the sum so far, so the bits differ from adding a finished product.
inline void gather_product(const Tensor& leaf, const Tensor& a, const Tensor& b) {
  Tensor& sum = const_cast<Tensor&>(leaf).mutable_grad();
  if (sum.defined()) {
    mr::add_product(sum, a, b);
  } else {
    sum = mr::product(a, b);
  }
}

// kept is the first tensor that a forward saved, without its history: a half that is left for later
// would otherwise keep the graph of all that the layer computed before, down to the leaf and its gradient.
Tensor kept(torch::autograd::AutogradContext* ctx);

// rows_of is a matrix of t's last dimension.
inline Tensor rows_of(const Tensor& t) { return t.dim() == 2 ? t : t.reshape({-1, t.size(-1)}); }

// save_linear keeps what the backward of x w^T + b needs; linear_back answers with the gradient
// of x, if it wants one, and leaves the weights' half, from the output's gradient and, if it is
// at hand, the bias's.
void save_linear(torch::autograd::AutogradContext* ctx, const Tensor& x, const Tensor& w,
                 const Optional& bias);
Tensor linear_back(torch::autograd::AutogradContext* ctx, const Tensor& grad, const Tensor& by_bias = {});

}  // namespace mr::split
