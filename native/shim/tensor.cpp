// tensor.cpp: making, reading and freeing tensors, and differentiating them.

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>

#include "internal.h"

namespace mr {

namespace {
thread_local std::vector<int64_t> result_words;
}

Results::Results() { result_words.assign(1, 0); }

void Results::add(at::Tensor tensor) {
  result_words[0]++;
  if (!tensor.defined()) {
    result_words.insert(result_words.end(), {0, 0, 0});
    return;
  }
  const auto sizes = tensor.sizes();
  const int64_t type = dtype_of(tensor.scalar_type());
  const int64_t rank = static_cast<int64_t>(sizes.size());
  const size_t at = result_words.size();
  result_words.resize(at + 3 + sizes.size());
  result_words[at + 1] = type;
  result_words[at + 2] = rank;
  std::copy(sizes.begin(), sizes.end(), result_words.begin() + at + 3);
  result_words[at] = reinterpret_cast<int64_t>(tensor.unsafeReleaseTensorImpl());
}

const int64_t* Results::words() const { return result_words.data(); }

std::vector<at::Tensor> borrow_all(const int64_t* handles, int64_t n, bool undefined_ok) {
  std::vector<at::Tensor> out;
  out.reserve(n);
  for (int64_t i = 0; i < n; i++) out.push_back(undefined_ok ? borrow(handles[i]) : defined(handles[i]));
  return out;
}

at::ScalarType scalar_type(int dtype) {
  switch (dtype) {
    case MR_F32:
      return at::kFloat;
    case MR_F64:
      return at::kDouble;
    case MR_I64:
      return at::kLong;
    case MR_U8:
      return at::kByte;
    case MR_BOOL:
      return at::kBool;
    default:
      throw std::invalid_argument("unknown element type " + std::to_string(dtype));
  }
}

int dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return MR_F32;
    case at::kDouble:
      return MR_F64;
    case at::kLong:
      return MR_I64;
    case at::kByte:
      return MR_U8;
    case at::kBool:
      return MR_BOOL;
    default:
      return MR_OTHER;
  }
}

namespace {

at::Tensor empty(int dtype, const int64_t* shape, int64_t rank) {
  return at::empty(at::IntArrayRef(shape, rank), at::TensorOptions().dtype(scalar_type(dtype)));
}

}  // namespace
}  // namespace mr

using mr::guarded;

const int64_t* mr_full(int dtype, const int64_t* shape, int64_t rank, double value) {
  return guarded<const int64_t*>(nullptr, [&] {
    return mr::one(
        at::full(at::IntArrayRef(shape, rank), value, at::TensorOptions().dtype(mr::scalar_type(dtype))));
  });
}

const int64_t* mr_from_bytes(int dtype, const int64_t* shape, int64_t rank, const void* data,
                             int64_t nbytes) {
  return guarded<const int64_t*>(nullptr, [&] {
    at::Tensor t = mr::empty(dtype, shape, rank);
    if (static_cast<int64_t>(t.nbytes()) != nbytes) {
      throw std::invalid_argument("the shape needs " + std::to_string(t.nbytes()) + " bytes, " +
                                  std::to_string(nbytes) + " were given");
    }
    if (nbytes > 0) std::memcpy(t.data_ptr(), data, nbytes);
    return mr::one(std::move(t));
  });
}

void* mr_data(int64_t tensor, int64_t* nbytes) {
  return guarded<void*>(nullptr, [&]() -> void* {
    const at::Tensor t = mr::defined(tensor);
    if (!t.device().is_cpu()) throw std::invalid_argument("the tensor is not in host memory");
    if (!t.is_contiguous()) throw std::invalid_argument("the tensor is not contiguous");
    *nbytes = static_cast<int64_t>(t.nbytes());
    static char nothing;
    return *nbytes == 0 ? &nothing : t.data_ptr();
  });
}

int mr_item(int64_t tensor, double* value) {
  return guarded<int>(1, [&] {
    *value = mr::defined(tensor).item().toDouble();
    return 0;
  });
}

const int64_t* mr_leaf(int64_t tensor, int requires_grad) {
  return guarded<const int64_t*>(nullptr, [&] {
    at::Tensor leaf = mr::defined(tensor).detach();
    leaf.set_requires_grad(requires_grad != 0);
    return mr::one(std::move(leaf));
  });
}

const int64_t* mr_contiguous(int64_t tensor) {
  return guarded<const int64_t*>(nullptr, [&] { return mr::one(mr::defined(tensor).contiguous()); });
}

void mr_free(const int64_t* tensors, int64_t n) {
  guarded<int>(1, [&] {
    for (int64_t i = 0; i < n; i++) {
      if (tensors[i] == 0) continue;
      auto* impl = reinterpret_cast<at::TensorImpl*>(tensors[i]);
      c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>::reclaim(impl);
    }
    return 0;
  });
}

int mr_backward(const int64_t* outputs, const int64_t* grads, int64_t n) {
  return guarded<int>(1, [&] {
    torch::autograd::backward(mr::borrow_all(outputs, n, false), mr::borrow_all(grads, n, true), false);
    return 0;
  });
}

const int64_t* mr_grad(int64_t leaf) {
  return guarded<const int64_t*>(nullptr, [&] { return mr::one(mr::defined(leaf).grad()); });
}

int mr_set_grad(int64_t leaf, int64_t grad) {
  return guarded<int>(1, [&] {
    const at::Tensor t = mr::defined(leaf), g = mr::borrow(grad);
    if (!t.is_leaf()) throw std::invalid_argument("the tensor is not a leaf of its graph");
    if (g.defined() && (g.sizes() != t.sizes() || g.scalar_type() != t.scalar_type())) {
      throw std::invalid_argument("the gradient and the leaf differ in shape or element type");
    }
    t.mutable_grad() = g;
    return 0;
  });
}

int mr_grad_mode(int on) {
  const bool was = c10::GradMode::is_enabled();
  c10::GradMode::set_enabled(on != 0);
  return was;
}

int mr_adopt(int64_t tensor, int owner) {
  return guarded<int>(1, [&] {
    const at::Tensor t = mr::defined(tensor);
    if (t.has_storage()) mr::charge(t.storage().data_ptr(), owner);
    return 0;
  });
}
