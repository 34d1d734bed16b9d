// room.h: scratch memory of one thread, for what an operator keeps between two of its loops.
//
// The thread keeps the memory from call to call: if it were allocated at each call, the system would clear
// its pages every time. It is on huge pages where the system has any. allocator.cpp does not count it, since
// it counts the bytes of tensors only.
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

  // floats is room for n floats, aligned to a huge page. If the room must grow, its old contents are lost.
  float* floats(int64_t n) {
    if (n > size_) {
      std::free(at_);
      at_ = nullptr;
      size_ = 0;
      const std::size_t bytes = (n * sizeof(float) + kPage - 1) / kPage * kPage;
      if (posix_memalign(&at_, kPage, bytes) != 0) throw std::bad_alloc();
      madvise(at_, bytes, MADV_HUGEPAGE);  // if the system refuses, only speed is lost
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
