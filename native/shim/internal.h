// internal.h: what the files of the shim share. Nothing here is exported.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "millrace.h"

namespace mr {

// error_slot is the calling thread's error text.
std::string& error_slot();

void set_error(const std::string& text);

// guarded runs f and returns its result. If f throws, it puts the text into error_slot and returns `failed`.
template <class R, class F>
R guarded(R failed, F&& f) noexcept {
  try {
    return f();
  } catch (const c10::Error& e) {
    set_error(e.what_without_backtrace());
  } catch (const std::exception& e) {
    set_error(e.what());
  } catch (...) {
    set_error("an exception that is not a std::exception");
  }
  return failed;
}

// borrow is the tensor behind a handle, as one more reference to it; it is undefined for 0.
inline at::Tensor borrow(int64_t handle) {
  if (handle == 0) return at::Tensor();
  auto* impl = reinterpret_cast<at::TensorImpl*>(handle);
  return at::Tensor(c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>::reclaim_copy(impl));
}

// defined is the tensor behind a handle; it throws for 0.
inline at::Tensor defined(int64_t handle) {
  if (handle == 0) throw std::invalid_argument("the tensor is freed or undefined");
  return borrow(handle);
}

std::vector<at::Tensor> borrow_all(const int64_t* handles, int64_t n, bool undefined_ok);

at::ScalarType scalar_type(int dtype);
int dtype_of(at::ScalarType type);

// Results collects tensors in the calling thread's result words.
class Results {
 public:
  Results();
  void add(at::Tensor tensor);
  const int64_t* words() const;
};

inline const int64_t* one(at::Tensor tensor) {
  Results results;
  results.add(std::move(tensor));
  return results.words();
}

// install_allocator replaces libtorch's own CPU allocator by the counting one.
void install_allocator();

// charge moves the charge of a storage's block to owner; it is false if allocator.cpp did not allocate it.
bool charge(const c10::DataPtr& block, int owner);

}  // namespace mr
