// split.cpp: operators whose backward comes in two halves, the gradient of their input
// and the gradients of their weights.
//
// Each is an autograd node that returns the first half, and either computes the second
// at once or, inside mr_backward_input, queues it. In both cases the second half is the same
// code on the same tensors, so a weight's gradient has the same bits whenever it is
// computed. It is added straight to the leaf's grad: a matrix product adds its terms to the gradient
// so far instead of writing a matrix that is then read again and added.

#include "split.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <functional>
#include <memory>
#include <vector>

#include "internal.h"

namespace {

using at::Tensor;
using mr::split::gather;
using mr::split::gather_product;
using mr::split::Optional;
using mr::split::refuse_graph;
using mr::split::rows_of;
using mr::split::takes;
using mr::split::wants;
using mr::split::weights_half;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Queue is what one backward has left for later. It is stored as debug information, because that is the
// thread-local state that autograd passes on to the threads of other devices.
struct Queue : c10::DebugInfoBase {
  std::vector<std::function<void()>> work;
};
constexpr auto kQueue = c10::DebugInfoKind::TEST_INFO;

}  // namespace

void mr::split::weights_half(std::function<void()> f) {
  if (auto* queue = static_cast<Queue*>(c10::ThreadLocalDebugInfo::get(kQueue))) {
    queue->work.push_back(std::move(f));
  } else {
    f();
  }
}

Tensor mr::split::kept(AutogradContext* ctx) { return ctx->get_saved_variables()[0].detach(); }

void mr::split::save_linear(AutogradContext* ctx, const Tensor& x, const Tensor& w, const Optional& bias) {
  ctx->save_for_backward({x});
  ctx->saved_data["w"] = w;
  ctx->saved_data["b"] = bias.has_value() && bias->defined() ? c10::IValue(*bias) : c10::IValue();
  ctx->saved_data["reads"] = x.requires_grad();
}

Tensor mr::split::linear_back(AutogradContext* ctx, const Tensor& grad, const Tensor& by_bias) {
  const Tensor x = mr::split::kept(ctx), w = ctx->saved_data["w"].toTensor();
  const Tensor b = ctx->saved_data["b"].isNone() ? Tensor() : ctx->saved_data["b"].toTensor();
  const Tensor g = rows_of(grad);
  Tensor back;
  if (ctx->saved_data["reads"].toBool()) back = mr::product(g, w).view(x.sizes());
  if (!mr::split::wants(w, b)) return back;
  weights_half([x, w, b, g, by_bias] {
    if (takes(w)) gather_product(w, g.t(), rows_of(x));
    if (takes(b)) gather(b, by_bias.defined() ? by_bias : g.sum(0));
  });
  return back;
}

namespace {

struct Linear : Function<Linear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w, const Optional& bias) {
    refuse_graph(w, "linear");
    if (bias.has_value()) refuse_graph(*bias, "linear");
    mr::split::save_linear(ctx, x, w, bias);
    if (x.dim() < 2 || w.dim() != 2) return at::linear(x, w, bias);
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = w.size(0);
    const Tensor rows = rows_of(x);
    const bool plain = !bias.has_value() || !bias->defined();
    return mr::product(rows, w.t(), plain ? Tensor() : *bias).view(sizes);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {mr::split::linear_back(ctx, grads[0]), Tensor(), Tensor()};
  }
};

struct Convolution : Function<Convolution> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w, const Optional& bias,
                        std::vector<int64_t> stride, std::vector<int64_t> padding,
                        std::vector<int64_t> dilation, int64_t groups) {
    const Tensor b = bias.has_value() ? *bias : Tensor();
    refuse_graph(w, "conv2d");
    refuse_graph(b, "conv2d");
    ctx->save_for_backward({x});
    ctx->saved_data["w"] = w;
    ctx->saved_data["b"] = b.defined() ? c10::IValue(b) : c10::IValue();
    ctx->saved_data["reads"] = x.requires_grad();
    ctx->saved_data["stride"] = stride;
    ctx->saved_data["padding"] = padding;
    ctx->saved_data["dilation"] = dilation;
    ctx->saved_data["groups"] = groups;
    return at::conv2d(x, w, bias, stride, padding, dilation, groups);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor x = mr::split::kept(ctx), w = ctx->saved_data["w"].toTensor(), g = grads[0].contiguous();
    const Tensor b = ctx->saved_data["b"].isNone() ? Tensor() : ctx->saved_data["b"].toTensor();
    const auto stride = ctx->saved_data["stride"].toIntVector(),
               padding = ctx->saved_data["padding"].toIntVector();
    const auto dilation = ctx->saved_data["dilation"].toIntVector();
    const int64_t groups = ctx->saved_data["groups"].toInt();
    const auto half = [=](bool reads, bool weight, bool bias) {
      const std::vector<int64_t> none(stride.size(), 0);
      std::vector<int64_t> width;
      if (b.defined()) width = {b.size(0)};
      return at::convolution_backward(
          g, x, w, b.defined() ? at::OptionalIntArrayRef(width) : at::OptionalIntArrayRef(), stride, padding,
          dilation, false, none, groups, {reads, weight, bias});
    };
    Tensor back;
    if (ctx->saved_data["reads"].toBool()) back = std::get<0>(half(true, false, false));
    if (wants(w, b))
      weights_half([=] {
        const auto found = half(false, takes(w), takes(b));
        if (takes(w)) gather(w, std::get<1>(found));
        if (takes(b)) gather(b, std::get<2>(found));
      });
    return {back, Tensor(), Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// Embedding has a second half only, since its input is whole numbers. The table's row number `padding` gets
// no gradient; -1 means that there is no such row.
struct Embedding : Function<Embedding> {
  static Tensor forward(AutogradContext* ctx, const Tensor& table, const Tensor& ids, int64_t padding) {
    refuse_graph(table, "embedding");
    ctx->save_for_backward({ids});
    ctx->saved_data["table"] = table;
    ctx->saved_data["padding"] = padding;
    return at::embedding(table, ids);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor ids = ctx->get_saved_variables()[0], table = ctx->saved_data["table"].toTensor(),
                 g = grads[0];
    const int64_t padding = ctx->saved_data["padding"].toInt();
    if (wants(table))
      weights_half([=] {
        if (takes(table)) gather(table, at::embedding_dense_backward(g, ids, table.size(0), padding, false));
      });
    return {Tensor(), Tensor(), Tensor()};
  }
};

TORCH_LIBRARY(millrace, m) {
  m.def("linear(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor",
        [](const Tensor& x, const Tensor& w, const Optional& b) { return Linear::apply(x, w, b); });
  m.def(
      "conv2d(Tensor x, Tensor weight, Tensor? bias, int[2] stride, int[2] padding, int[2] dilation=1, "
      "int groups=1) -> Tensor",
      [](const Tensor& x, const Tensor& w, const Optional& b, at::IntArrayRef stride, at::IntArrayRef padding,
         at::IntArrayRef dilation, int64_t groups) {
        return Convolution::apply(x, w, b, stride.vec(), padding.vec(), dilation.vec(), groups);
      });
  m.def("embedding(Tensor table, Tensor ids, int padding=-1) -> Tensor",
        [](const Tensor& table, const Tensor& ids, int64_t padding) {
          return Embedding::apply(table, ids, padding);
        });
}

}  // namespace

struct mr_work {
  std::shared_ptr<Queue> queue;
};

mr_work* mr_backward_input(const int64_t* outputs, const int64_t* grads, int64_t n) {
  return mr::guarded<mr_work*>(nullptr, [&] {
    auto queue = std::make_shared<Queue>();
    {
      c10::DebugInfoGuard guard(kQueue, queue);
      torch::autograd::backward(mr::borrow_all(outputs, n, false), mr::borrow_all(grads, n, true), false);
    }
    return new mr_work{std::move(queue)};
  });
}

int64_t mr_work_size(const mr_work* work) { return static_cast<int64_t>(work->queue->work.size()); }

int mr_work_run(mr_work* work) {
  return mr::guarded<int>(1, [&] {
    c10::AutoGradMode off(false);
    for (auto& f : work->queue->work) {
      f();
      f = nullptr;
    }
    work->queue->work.clear();
    return 0;
  });
}

void mr_work_free(mr_work* work) { delete work; }
