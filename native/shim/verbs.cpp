// verbs.cpp: operators that training needs beside those of the model, and that libtorch does not have.
//
//   mask        a dropout mask. Besides the key, an element's bits depend only on its row's number and its
//               place in the row, so any slice of a micro-batch gets the same rows as the whole. It is
//               composed of whole-number operators, which any device has; on CPUs a kernel does it in one
//               pass.
//   square_sum  the sum of squares in double precision. On CPUs the order of additions is fixed in this file,
//               so that it is the same for every build.
//   lars_       turns a gradient, in place, into the direction of layer-wise adaptive rate scaling.

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <cmath>

#include "internal.h"
#include "kernels.h"
#include "mix.h"

namespace {

using at::Tensor;

// shifted is z >> by for z taken as unsigned.
Tensor shifted(const Tensor& z, int64_t by) {
  return at::bitwise_and(at::bitwise_right_shift(z, by), static_cast<int64_t>(~uint64_t{0} >> by));
}

// mix is mr::mix of every element.
Tensor mix(Tensor z) {
  z = at::bitwise_xor(z, shifted(z, 30)) * static_cast<int64_t>(mr::kMix1);
  z = at::bitwise_xor(z, shifted(z, 27)) * static_cast<int64_t>(mr::kMix2);
  return at::bitwise_xor(z, shifted(z, 31));
}

Tensor mask_of(const Tensor& like, at::IntArrayRef shape, int64_t per_row, int64_t key, int64_t first_row,
               int64_t threshold, double keep) {
  const int64_t words = (per_row + 3) / 4, golden = static_cast<int64_t>(mr::kGolden);
  const auto whole = like.options().dtype(at::kLong);
  const Tensor keys =
      mix(at::arange(first_row + 1, first_row + 1 + shape[0], whole) * golden + key).unsqueeze(1);
  const Tensor drawn = mix(keys + at::arange(1, words + 1, whole) * golden).unsqueeze(2);
  const Tensor lanes = at::bitwise_and(at::bitwise_right_shift(drawn, at::arange(0, 64, 16, whole)), 0xffff);
  const Tensor kept = lanes.reshape({shape[0], 4 * words}).narrow(1, 0, per_row).ge(threshold);
  return at::full({}, keep, like.options()).mul(kept.to(like.scalar_type())).reshape(shape).contiguous();
}

Tensor mask(const Tensor& like, at::IntArrayRef shape, int64_t key, int64_t first_row, int64_t threshold,
            double keep) {
  if (shape.empty() || !at::isFloatingType(like.scalar_type()) || threshold < 0 || threshold > 0xffff) {
    throw std::invalid_argument(
        "mask takes a tensor of floats to be like, a shape of rows and a threshold of 16 bits");
  }
  int64_t per_row = 1;
  for (const int64_t n : shape.slice(1)) per_row *= n;
  if (mr::kernels() != nullptr) {
    const Tensor m = mr::kernels()->mask(like, shape, per_row, key, first_row, threshold, keep);
    if (m.defined()) return m;
  }
  return mask_of(like, shape, per_row, key, first_row, threshold, keep);
}

template <class T>
double squares(const T* x, int64_t n) {
  double part[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int k = 0; k < 8; ++k) part[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
  }
  for (int k = 0; i + k < n; ++k) part[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

Tensor square_sum(const Tensor& given) {
  if (!at::isFloatingType(given.scalar_type()))
    throw std::invalid_argument("square_sum takes a tensor of floats");
  const c10::AutoGradMode off(false);
  const Tensor x = given.detach().contiguous();
  const auto wide = x.options().dtype(at::kDouble);
  if (x.is_cpu() && x.scalar_type() == at::kFloat)
    return at::full({}, squares(x.data_ptr<float>(), x.numel()), wide);
  if (x.is_cpu() && x.scalar_type() == at::kDouble)
    return at::full({}, squares(x.data_ptr<double>(), x.numel()), wide);
  return x.to(at::kDouble).square().sum();
}

// lars_ turns a gradient into the direction of layer-wise adaptive rate scaling: with w the weight's norm and
// g the gradient's, grad = trust (grad + decay weight), where trust = coefficient w / (g + decay w), or 1 if
// w or g is 0.
Tensor& lars_(Tensor& grad, const Tensor& weight, double coefficient, double decay) {
  const c10::AutoGradMode off(false);
  const Tensor w = square_sum(weight).sqrt(), g = square_sum(grad).sqrt();
  const Tensor moves = w.mul(g).gt(0);
  const Tensor below = at::where(moves, g + w * decay, at::ones_like(w));
  const Tensor trust = at::where(moves, w * coefficient / below, at::ones_like(w));
  return grad.add_(weight, decay).mul_(trust.to(grad.scalar_type()));
}

TORCH_LIBRARY_FRAGMENT(millrace, m) {
  m.def("mask(Tensor like, int[] shape, int key, int first_row, int threshold, float keep) -> Tensor", mask);
  m.def("square_sum(Tensor x) -> Tensor", square_sum);
  m.def("lars_(Tensor(a!) grad, Tensor weight, float coefficient, float decay) -> Tensor(a!)", lars_);
}

}  // namespace
