// room.h: memory of a thread's own for what an operator keeps between two of its loops.
//
// It stays with the thread: asked for afresh at each call, the kernel would clear its pages every
// time. On huge pages where there are any, and not in the accounts of allocator.cpp, whose bytes
// are tensors'.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

namespace mr {

class Room {
 public:
  Room() = default;
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() { std::free(at_); }

  // floats is room for so many, on a boundary of a huge page; what was there before is gone if it grows.
  float* floats(int64_t n) {
    if (n > size_) {
      std::free(at_);
      at_ = nullptr;
      size_ = 0;
      const std::size_t bytes = (n * sizeof(float) + kPage - 1) / kPage * kPage;
      if (posix_memalign(&at_, kPage, bytes) != 0) throw std::bad_alloc();
      madvise(at_, bytes, MADV_HUGEPAGE);  // advice: refusal costs speed only
      size_ = static_cast<int64_t>(bytes / sizeof(float));
    }
    return static_cast<float*>(at_);
  }

 private:
  static constexpr std::size_t kPage = std::size_t{2} << 20;
  void* at_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace mr
