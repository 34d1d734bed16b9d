// allocator.cpp: host memory, counted by owner and kept for reuse.
//
// Every block has a 64-byte header and starts on a 64-byte boundary, so that a kernel
// never takes another path (and gives other bits) because of where a tensor lies.
// A freed block goes back to the cache of its home, the owner that first allocated it,
// whichever thread frees it. Otherwise a stage that receives activations would collect
// its neighbour's blocks without end. Cached blocks also save time: glibc maps new pages at
// each allocation of a large tensor, and the system clears them one page fault at a time.
//
// Blocks are cut from slabs for which the system is asked to use huge pages: a matrix product goes down
// columns whose rows are a page or more apart, and with small pages would spend time on looking pages up.
// Between two blocks in a slab there is a header, so that matrices whose sizes are powers of two do not all
// begin in the same cache sets.
//
// `owner` in the header is the owner to whom the block's bytes are charged while it lives; mr_adopt
// changes it. Live bytes are the bytes asked for. Cached bytes are capacities.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "internal.h"

namespace {

constexpr int kOwners = 1024;
constexpr size_t kAlign = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSlab = size_t{32} << 20;
constexpr size_t kLoner = size_t{8} << 20;  // a block of this size or more gets a slab of its own
constexpr size_t kPage = 4096;
constexpr int kClasses = 256;
// An account gives its whole cache back to the system when the capacity of its blocks would exceed kHoard
// times the most it has used at once, plus kHoardSlack bytes.
constexpr int64_t kHoard = 2, kHoardSlack = int64_t{64} << 20;

// Slab is memory that blocks are cut from, one behind the other. The account that can still cut from it
// counts as one reference, and each block as one.
struct Slab {
  char* memory;
  size_t used;
  std::atomic<int> references;
};

struct alignas(kAlign) Header {
  size_t bytes;     // asked for
  size_t capacity;  // usable
  Header* next;     // in a free list
  Slab* slab;
  std::atomic<int> owner;
  int home;
  int size_class;
};
static_assert(sizeof(Header) == kAlign, "the data behind a header must stay aligned");

// class_of is the size class of a block, and its capacity. Capacities are multiples of 64 bytes up to 512,
// then eight per doubling, so that above 512 bytes less than an eighth of a block is unused.
int class_of(size_t bytes, size_t* capacity) {
  if (bytes <= 512) {
    const size_t units = (bytes + 63) / 64;
    *capacity = units * 64;
    return static_cast<int>(units) - 1;
  }
  const int top = 63 - __builtin_clzll(bytes - 1);  // 2^top <= bytes-1, top >= 9
  const size_t step = size_t{1} << (top - 3);
  const size_t steps = (bytes - (size_t{1} << top) + step - 1) / step;  // 1..8
  *capacity = (size_t{1} << top) + steps * step;
  return 8 + (top - 9) * 8 + static_cast<int>(steps) - 1;
}

// Account is what is charged to one owner, and its cache of blocks. Each has its own cache lines.
struct alignas(128) Account {
  std::atomic<int64_t> live{0};
  std::atomic<int64_t> peak{0};

  std::mutex lock;  // guards everything below
  Header* free[kClasses] = {};
  Slab* slab = nullptr;  // new blocks are cut from this one
  int64_t cached = 0;
  int64_t held = 0;     // capacities of blocks whose home this is, cached or not
  int64_t in_use = 0;   // held - cached
  int64_t top_use = 0;  // highest in_use

  void add(int64_t bytes) {
    const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t seen = peak.load(std::memory_order_relaxed);
    while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }
};

// Never destroyed: tensors in static storage are freed after main.
Account* accounts = nullptr;

thread_local int current_owner = 0;

Slab* new_slab(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kHugePage, bytes) != 0) throw std::bad_alloc();
  madvise(memory, bytes, MADV_HUGEPAGE);  // if the system refuses, only speed is lost
  return new Slab{static_cast<char*>(memory), 0, {1}};
}

void unpin(Slab* slab) {
  if (slab->references.fetch_sub(1) != 1) return;
  std::free(slab->memory);
  delete slab;
}

// drop gives a block's whole pages back to the system, and frees the slab if this was its last reference.
void drop(Header* block) {
  Slab* slab = block->slab;
  const uintptr_t from = (reinterpret_cast<uintptr_t>(block) + kPage - 1) / kPage * kPage;
  const uintptr_t to = (reinterpret_cast<uintptr_t>(block + 1) + block->capacity) / kPage * kPage;
  if (to > from) madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
  unpin(slab);
}

void drop_all(Header* list) {
  while (list != nullptr) {
    Header* next = list->next;
    drop(list);
    list = next;
  }
}

// take_all takes all cached blocks out of an account whose lock is held, and returns them as a list.
Header* take_all(Account& a) {
  Header* all = nullptr;
  for (Header*& head : a.free) {
    while (head != nullptr) {
      Header* block = head;
      head = block->next;
      block->next = all;
      all = block;
    }
  }
  a.held -= a.cached;
  a.cached = 0;
  return all;
}

// fresh cuts a new block from the slab of an account whose lock is held; a large block gets its own slab.
Header* fresh(Account& home, size_t capacity) {
  const size_t total = capacity + sizeof(Header);
  Slab* slab = home.slab;
  if (total >= kLoner) {
    slab = new_slab(total);
  } else {
    if (slab == nullptr || slab->used + total > kSlab) {
      Slab* next = new_slab(kSlab);
      if (slab != nullptr) unpin(slab);
      home.slab = slab = next;
    }
    slab->references.fetch_add(1);
  }
  Header* block = new (slab->memory + slab->used) Header{};
  slab->used += total;
  block->slab = slab;
  return block;
}

void release(void* data) {
  if (data == nullptr) return;
  Header* block = static_cast<Header*>(data) - 1;
  accounts[block->owner.load(std::memory_order_relaxed)].add(-static_cast<int64_t>(block->bytes));
  Account& home = accounts[block->home];
  const std::lock_guard<std::mutex> hold(home.lock);
  block->next = home.free[block->size_class];
  home.free[block->size_class] = block;
  home.cached += block->capacity;
  home.in_use -= block->capacity;
}

void* obtain(size_t bytes) {
  if (bytes > (size_t{1} << 40)) {
    throw std::invalid_argument("a tensor of " + std::to_string(bytes) + " bytes is more than any host has");
  }
  size_t capacity;
  const int size_class = class_of(bytes, &capacity);
  const int owner = current_owner;
  Account& home = accounts[owner];
  Header* block = nullptr;
  Header* surplus = nullptr;
  try {
    const std::lock_guard<std::mutex> hold(home.lock);
    block = home.free[size_class];
    if (block != nullptr) {
      home.free[size_class] = block->next;
      home.cached -= capacity;
    } else {
      if (home.held + static_cast<int64_t>(capacity) >
          kHoard * std::max<int64_t>(home.top_use, home.in_use + capacity) + kHoardSlack) {
        surplus = take_all(home);
      }
      block = fresh(home, capacity);
      home.held += capacity;
      block->capacity = capacity;
      block->home = owner;
      block->size_class = size_class;
    }
    home.in_use += capacity;
    if (home.in_use > home.top_use) home.top_use = home.in_use;
  } catch (const std::bad_alloc&) {
    drop_all(surplus);
    throw std::runtime_error("out of memory asking for " + std::to_string(bytes) + " bytes");
  }
  drop_all(surplus);
  block->bytes = bytes;
  block->owner.store(owner, std::memory_order_relaxed);
  home.add(static_cast<int64_t>(bytes));
  return block + 1;
}

// Between 1.13 and 2.x libtorch changed the constness of allocate and added copy_data. This class has the
// functions of both versions, so none of them can be marked `override`.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const { return make(bytes); }
  c10::DataPtr allocate(size_t bytes) { return make(bytes); }
  c10::DeleterFnPtr raw_deleter() const { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }

 private:
  static c10::DataPtr make(size_t bytes) {
    void* data = bytes == 0 ? nullptr : obtain(bytes);
    return c10::DataPtr(data, data, &release, c10::Device(c10::DeviceType::CPU));
  }
};

bool known(int owner) { return owner >= 0 && owner < kOwners; }

}  // namespace

namespace mr {

void install_allocator() {
  static CountingAllocator* const allocator = [] {
    accounts = new Account[kOwners];
    return new CountingAllocator;
  }();
  c10::SetCPUAllocator(allocator, /*priority=*/100);
}

bool charge(const c10::DataPtr& data, int owner) {
  if (!known(owner)) throw std::invalid_argument("owner " + std::to_string(owner) + " is out of range");
  if (data.get_deleter() != &release || data.get_context() == nullptr) return false;
  Header* block = static_cast<Header*>(data.get_context()) - 1;
  const int before = block->owner.exchange(owner, std::memory_order_relaxed);
  if (before != owner) {
    accounts[owner].add(static_cast<int64_t>(block->bytes));
    accounts[before].add(-static_cast<int64_t>(block->bytes));
  }
  return true;
}

}  // namespace mr

int mr_owners(void) { return kOwners; }

int mr_set_owner(int owner) {
  if (!known(owner)) {
    mr::set_error("owner " + std::to_string(owner) + " is out of range");
    return 1;
  }
  current_owner = owner;
  return 0;
}

void mr_memory(int owner, int64_t bytes[3]) {
  bytes[0] = bytes[1] = bytes[2] = 0;
  if (!known(owner) || accounts == nullptr) return;
  Account& a = accounts[owner];
  bytes[0] = a.live.load(std::memory_order_relaxed);
  bytes[1] = a.peak.load(std::memory_order_relaxed);
  const std::lock_guard<std::mutex> hold(a.lock);
  bytes[2] = a.cached;
}

void mr_reset_peak(int owner) {
  if (!known(owner) || accounts == nullptr) return;
  Account& a = accounts[owner];
  a.peak.store(a.live.load());
  a.add(0);  // the peak must include what another thread has charged since live was read
}

void mr_trim(int owner) {
  if (!known(owner) || accounts == nullptr) return;
  Header* all;
  {
    const std::lock_guard<std::mutex> hold(accounts[owner].lock);
    all = take_all(accounts[owner]);
  }
  drop_all(all);
}
