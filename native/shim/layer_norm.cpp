// layer_norm.cpp: layer norm over the last dimension.
//
// Ba et al., Layer Normalization (2016), with gain a, shift b and the gradient g of y:
//
//   h = (x - mean) r,  r = 1 / sqrt(variance + eps);  y = h a + b
//   dx = r (g a - mean(g a) - h mean(g a h));  da = sum over rows g h;  db = sum over rows g
//
// The gradients of gain and shift are calculated in backward's first half (split.h), where they cost hardly
// any more, and are kept as two rows until the second. The loops are in native/kernels; without them
// libtorch's own operators are used.

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "internal.h"
#include "split.h"

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

void check(const Tensor& x, const Tensor& gain, const Tensor& shift) {
  const bool fits = x.dim() >= 1 && gain.dim() == 1 && shift.dim() == 1 && gain.size(0) == x.size(-1) &&
                    shift.size(0) == x.size(-1);
  if (!fits) throw std::invalid_argument("layer_norm takes x [..., width], gain [width] and shift [width]");
}

struct LayerNorm : Function<LayerNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& given, const Tensor& gain, const Tensor& shift,
                        double eps) {
    const Tensor x = given.contiguous();
    Tensor y, mean, r;
    if (mr::kernels() == nullptr || !mr::kernels()->layer_norm(x, gain, shift, eps, y, mean, r)) {
      std::tie(y, mean, r) = at::native_layer_norm(x, gain.sizes(), gain, shift, eps);
    }
    ctx->save_for_backward({x, mean, r});
    ctx->saved_data["gain"] = gain;
    ctx->saved_data["shift"] = shift;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor x = saved[0], mean = saved[1], r = saved[2], g = grads[0].contiguous();
    const Tensor gain = ctx->saved_data["gain"].toTensor(), shift = ctx->saved_data["shift"].toTensor();
    Tensor back, by_gain, by_shift;
    if (mr::kernels() == nullptr ||
        !mr::kernels()->layer_norm_back(g, x, mean, r, gain, back, by_gain, by_shift)) {
      std::tie(back, by_gain, by_shift) =
          at::native_layer_norm_backward(g, x, gain.sizes(), mean, r, gain, shift, {true, true, true});
    }
    if (mr::split::wants(gain, shift))
      mr::split::weights_half([=] {
        if (mr::split::takes(gain)) mr::split::gather(gain, by_gain);
        if (mr::split::takes(shift)) mr::split::gather(shift, by_shift);
      });
    return {back, Tensor(), Tensor(), Tensor()};
  }
};

TORCH_LIBRARY_FRAGMENT(millrace, m) {
  m.def("layer_norm(Tensor x, Tensor gain, Tensor shift, float eps) -> Tensor",
        [](const Tensor& x, const Tensor& gain, const Tensor& shift, double eps) {
          check(x, gain, shift);
          mr::split::refuse_graph(gain, "layer_norm");
          mr::split::refuse_graph(shift, "layer_norm");
          return LayerNorm::apply(x, gain, shift, eps);
        });
}

}  // namespace
