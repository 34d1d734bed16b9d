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

// The calling thread's error text.
std::string& error_slot();

void set_error(const std::string& text);

// Runs f and turns whatever it throws into the error slot and the value `failed`.
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

// The tensor behind a handle, with a reference of its own; undefined for 0.
inline at::Tensor borrow(int64_t handle) {
  if (handle == 0) return at::Tensor();
  auto* impl = reinterpret_cast<at::TensorImpl*>(handle);
  return at::Tensor(c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>::reclaim_copy(impl));
}

// The same, refusing 0.
inline at::Tensor defined(int64_t handle) {
  if (handle == 0) throw std::invalid_argument("the tensor is freed or undefined");
  return borrow(handle);
}

std::vector<at::Tensor> borrow_all(const int64_t* handles, int64_t n, bool undefined_ok);

at::ScalarType scalar_type(int dtype);
int dtype_of(at::ScalarType type);

// Collects results in the calling thread's result words.
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

// Puts the counting allocator in place of libtorch's own.
void install_allocator();

// Moves the charge of a storage's block to owner; false if the block is not ours.
bool charge(const c10::DataPtr& block, int owner);

}  // namespace mr
