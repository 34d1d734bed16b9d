// lstm.cpp: one recurrent layer over whole sequences, with a backward in two halves (split.h).
//
// This is the LSTM of Hochreiter and Schmidhuber (1997) with forget gates (Gers et al., 2000) and without
// peepholes. Its parameters are cuDNN's: gates in the order input, forget, cell, output, each with two
// biases. The two biases a and b are given as one tensor or as two.
//
//   z_t = W x_t + U h_(t-1) + a + b
//   i, f, o = sigmoid(z^i), sigmoid(z^f), sigmoid(z^o);  g = tanh(z^g)
//   c_t = f c_(t-1) + i g;  h_t = o tanh(c_t)
//
// h and c are zero before each sequence: nothing is carried from one call to the next.
// W x_t is one matrix product for all positions, and so is the gradient of x. So are the
// gradients of the weights, whose terms are added row by row and, within a row,
// position by position. Only U h_(t-1) and its gradient are computed step by step.
//
// These are kept between forward and backward, for each row and position: x, the four gates, c
// and h. For the second half these are kept: x, h and the gradients of the four gates' sums z.

#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "internal.h"
#include "split.h"

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Gates is the gates of one position t, as views of the tensor of all gates.
struct Gates {
  Tensor in, forget, cell, out;
  Gates(const Tensor& all, int64_t t, int64_t units) {
    const Tensor z = all.select(1, t);
    in = z.narrow(1, 0, units);
    forget = z.narrow(1, units, units);
    cell = z.narrow(1, 2 * units, units);
    out = z.narrow(1, 3 * units, units);
  }
};

void check(const Tensor& x, const Tensor& w, const Tensor& u, const Tensor& bias, const Tensor& second) {
  const int64_t biases = second.defined() ? 4 : 8;
  const bool fits = x.dim() == 3 && w.dim() == 2 && u.dim() == 2 && bias.dim() == 1 && x.size(1) > 0 &&
                    w.size(1) == x.size(2) && w.size(0) == 4 * u.size(1) && u.size(0) == 4 * u.size(1) &&
                    bias.size(0) == biases * u.size(1) &&
                    (!second.defined() || second.sizes() == bias.sizes());
  if (!fits) {
    throw std::invalid_argument(
        "lstm takes x [rows, positions, width], input [4 units, width], state [4 units, units] and bias [8 "
        "units], or "
        "two of [4 units]");
  }
}

// Walk is the positions in the order in which the layer reads them.
struct Walk {
  int64_t length;
  bool reverse;
  int64_t at(int64_t step) const { return reverse ? length - 1 - step : step; }
};

struct Lstm : Function<Lstm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w, const Tensor& u,
                        const Tensor& bias, bool reverse, const mr::split::Optional& more) {
    const Tensor second = more.has_value() ? *more : Tensor();
    check(x, w, u, bias, second);
    for (const Tensor& p : {w, u, bias, second}) mr::split::refuse_graph(p, "lstm");
    const int64_t units = u.size(1), rows = x.size(0);
    const Walk walk{x.size(1), reverse};
    const Tensor sum = second.defined() ? bias + second
                                        : bias.narrow(0, 0, 4 * units) + bias.narrow(0, 4 * units, 4 * units);
    Tensor gates = at::linear(x, w, sum);
    Tensor cells = at::empty({rows, walk.length, units}, x.options()), h = at::empty_like(cells);
    for (int64_t s = 0; s < walk.length; ++s) {
      const int64_t t = walk.at(s);
      const Gates a(gates, t, units);
      if (s > 0) gates.select(1, t).addmm_(h.select(1, walk.at(s - 1)), u.t());
      gates.select(1, t).narrow(1, 0, 2 * units).sigmoid_();
      a.cell.tanh_();
      a.out.sigmoid_();
      Tensor c = cells.select(1, t), y = h.select(1, t);
      at::mul_out(c, a.in, a.cell);
      if (s > 0) c.addcmul_(a.forget, cells.select(1, walk.at(s - 1)));
      at::tanh_out(y, c);
      y.mul_(a.out);
    }
    ctx->save_for_backward({x, gates, cells, h});
    ctx->saved_data["w"] = w;
    ctx->saved_data["u"] = u;
    ctx->saved_data["bias"] = bias;
    ctx->saved_data["second"] = second.defined() ? c10::IValue(second) : c10::IValue();
    ctx->saved_data["reads"] = x.requires_grad();
    ctx->saved_data["reverse"] = reverse;
    return h;
  }

  // through_time computes the gradients of the gates' sums z, from the last position read to the first.
  static Tensor through_time(const Tensor& grad, const Tensor& gates, const Tensor& cells, const Tensor& u,
                             Walk walk) {
    const int64_t units = u.size(1);
    Tensor back = at::empty_like(gates), dc = at::zeros({grad.size(0), units}, grad.options());
    for (int64_t s = walk.length - 1; s >= 0; --s) {
      const int64_t t = walk.at(s);
      const Gates a(gates, t, units);
      Gates d(back, t, units);
      Tensor dh = grad.select(1, t);
      if (s + 1 < walk.length) dh = at::addmm(dh, back.select(1, walk.at(s + 1)), u);
      const Tensor squashed = cells.select(1, t).tanh();
      at::sigmoid_backward_out(d.out, dh * squashed, a.out);
      dc.add_(at::tanh_backward(dh * a.out, squashed));
      at::sigmoid_backward_out(d.in, dc * a.cell, a.in);
      at::tanh_backward_out(d.cell, dc * a.in, a.cell);
      if (s > 0) {
        at::sigmoid_backward_out(d.forget, dc * cells.select(1, walk.at(s - 1)), a.forget);
      } else {
        d.forget.zero_();
      }
      dc.mul_(a.forget);
    }
    return back;
  }

  // before has at each position the h of the position read before it, and zeros at the first one read.
  static Tensor before(const Tensor& h, Walk walk) {
    Tensor shifted = at::zeros_like(h);
    const int64_t n = walk.length - 1;
    shifted.narrow(1, walk.reverse ? 0 : 1, n).copy_(h.narrow(1, walk.reverse ? 1 : 0, n));
    return shifted;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor x = saved[0].detach(), h = saved[3].detach(), u = ctx->saved_data["u"].toTensor();
    const Tensor w = ctx->saved_data["w"].toTensor(), bias = ctx->saved_data["bias"].toTensor();
    const Tensor second =
        ctx->saved_data["second"].isNone() ? Tensor() : ctx->saved_data["second"].toTensor();
    const Walk walk{x.size(1), ctx->saved_data["reverse"].toBool()};
    const Tensor d = mr::split::rows_of(through_time(grads[0], saved[1], saved[2], u, walk));
    Tensor back;
    if (ctx->saved_data["reads"].toBool()) back = at::mm(d, w).view(x.sizes());
    if (mr::split::wants(w, u, bias, second))
      mr::split::weights_half([=] {
        if (mr::split::takes(w)) mr::split::gather_product(w, d.t(), mr::split::rows_of(x));
        if (mr::split::takes(u)) mr::split::gather_product(u, d.t(), mr::split::rows_of(before(h, walk)));
        if (mr::split::takes(bias) || mr::split::takes(second)) {
          const Tensor sum = d.sum(0);
          if (mr::split::takes(bias)) mr::split::gather(bias, second.defined() ? sum : at::cat({sum, sum}));
          if (mr::split::takes(second)) mr::split::gather(second, sum.clone());
        }
      });
    return {back, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

TORCH_LIBRARY_FRAGMENT(millrace, m) {
  m.def(
      "lstm(Tensor x, Tensor input, Tensor state, Tensor bias, bool reverse=False, Tensor? second=None) -> "
      "Tensor",
      [](const Tensor& x, const Tensor& w, const Tensor& u, const Tensor& bias, bool reverse,
         const mr::split::Optional& second) { return Lstm::apply(x, w, u, bias, reverse, second); });
}

}  // namespace
