// composed.cpp: operators that a kernel computes as a whole, backward included. Where no kernel can (another
// device or element type, or a library without kernels), they are composed of libtorch's own operators.
//
//   causal_attention  s_ij = q_i . k_j / sqrt(d), j <= i;  p_i = softmax(s_i);  y_i = sum_j m_ij p_ij v_j
//                     (Vaswani et al., Attention Is All You Need, 2017, section 3.2, with a decoder's mask);
//                     d is the width of a head and m an optional dropout mask
//   max_pool          the largest element of each square window; windows do not overlap

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "internal.h"
#include "kernels.h"

namespace {

using at::Tensor;
using Optional = decltype(std::declval<const c10::IValue&>().toOptional<Tensor>());

Tensor attention_of(const Tensor& qkv, int64_t heads, const Tensor& mask) {
  const int64_t rows = qkv.size(0), t = qkv.size(1), width = qkv.size(2) / 3, d = width / heads;
  const Tensor apart =
      qkv.reshape({rows, t, 3, heads, d}).permute({2, 0, 3, 1, 4}).reshape({3, rows * heads, t, d});
  const Tensor future = at::full({t, t}, -std::numeric_limits<double>::infinity(), qkv.options()).triu(1);
  Tensor p = at::baddbmm(future, apart[0], apart[1].transpose(1, 2), 1, 1 / std::sqrt(static_cast<double>(d)))
                 .softmax(-1);
  if (mask.defined()) p = p * mask.view(p.sizes());
  return p.bmm(apart[2]).view({rows, heads, t, d}).transpose(1, 2).reshape({rows, t, width});
}

Tensor causal_attention(const Tensor& qkv, int64_t heads, const Optional& drop) {
  if (qkv.dim() != 3 || heads <= 0 || qkv.size(2) % (3 * heads) != 0) {
    throw std::invalid_argument(
        "causal_attention takes [rows, positions, 3 width] with q, k and v side by side, each of whole "
        "heads");
  }
  Tensor mask;
  if (drop.has_value() && drop->defined()) {
    mask = drop->contiguous();
    if (mask.numel() != qkv.size(0) * heads * qkv.size(1) * qkv.size(1) ||
        mask.scalar_type() != qkv.scalar_type()) {
      throw std::invalid_argument(
          "causal_attention takes a mask of [rows, heads, positions, positions] of its input's element type");
    }
  }
  if (mr::kernels() != nullptr) {
    const Tensor y = mr::kernels()->causal_attention(qkv, heads, mask);
    if (y.defined()) return y;
  }
  return attention_of(qkv, heads, mask);
}

Tensor max_pool(const Tensor& x, int64_t size) {
  if (x.dim() != 4 || size < 1 || x.size(2) < size || x.size(3) < size) {
    throw std::invalid_argument(
        "max_pool takes [rows, channels, height, width] and the side of a window that fits in");
  }
  if (mr::kernels() != nullptr) {
    const Tensor y = mr::kernels()->max_pool(x, size);
    if (y.defined()) return y;
  }
  return at::max_pool2d(x, {size, size}, {size, size});
}

TORCH_LIBRARY_FRAGMENT(millrace, m) {
  m.def("causal_attention(Tensor qkv, int heads, Tensor? mask=None) -> Tensor", causal_attention);
  m.def("max_pool(Tensor x, int size) -> Tensor", max_pool);
}

}  // namespace
