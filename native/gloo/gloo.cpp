// gloo.cpp: sums over processes with Gloo, the library that libtorch's c10d is built on. c10d has no way to
// end a sum whose peer is lost; Gloo has. The library can be built without this file, and then lacks the
// mr_gloo functions.

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "internal.h"

namespace {

// Store is where Gloo finds the addresses of the group's other members. The caller of mr_gloo_new carries
// what is set here to the other members, over its own connections (mr_gloo_said and mr_gloo_told).
class Store : public gloo::rendezvous::Store {
 public:
  void set(const std::string& key, const std::vector<char>& data) override {
    std::lock_guard<std::mutex> lock(mu_);
    std::string said = key;
    said.push_back('\0');
    said.append(data.begin(), data.end());
    said_.push_back(std::move(said));
    here_[key] = data;
    more_.notify_all();
  }

  std::vector<char> get(const std::string& key) override {
    std::unique_lock<std::mutex> lock(mu_);
    more_.wait(lock, [&] { return ended_ || here_.count(key) != 0; });
    if (here_.count(key) == 0) throw std::runtime_error("the group has ended");
    return here_[key];
  }

  void wait(const std::vector<std::string>& keys) override {
    for (const auto& key : keys) get(key);
  }

  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

  // said waits for the next entry that Gloo sets and returns it as key, zero byte, value; empty once there
  // will be no more.
  const std::string& said() {
    std::unique_lock<std::mutex> lock(mu_);
    more_.wait(lock, [&] { return ended_ || whole_ || !said_.empty(); });
    if (ended_) throw std::runtime_error("the group has ended");
    last_.clear();
    if (!said_.empty()) {
      last_ = std::move(said_.front());
      said_.pop_front();
    }
    return last_;
  }

  void whole() {
    std::lock_guard<std::mutex> lock(mu_);
    whole_ = true;
    more_.notify_all();
  }

  void told(const char* data, int64_t n) {
    const char* end = static_cast<const char*>(std::memchr(data, 0, n));
    if (end == nullptr) throw std::invalid_argument("what another member said has no key");
    std::lock_guard<std::mutex> lock(mu_);
    here_[std::string(data, end)] = std::vector<char>(end + 1, data + n);
    more_.notify_all();
  }

  void end() {
    std::lock_guard<std::mutex> lock(mu_);
    ended_ = true;
    more_.notify_all();
  }

 private:
  std::mutex mu_;
  std::condition_variable more_;
  std::deque<std::string> said_;
  std::string last_;
  std::map<std::string, std::vector<char>> here_;
  bool whole_ = false;
  bool ended_ = false;
};

// longest is the timeout of a sum. It can be this long because lost peers are noticed in other ways, and the
// group is then ended by mr_gloo_end.
constexpr auto longest = std::chrono::hours(24);

template <class T>
void sum_here(std::shared_ptr<gloo::Context> context, char* data, int64_t nbytes, uint32_t tag) {
  gloo::AllreduceOptions options(context);
  options.setOutput(reinterpret_cast<T*>(data), nbytes / sizeof(T));
  options.setReduceFunction(
      [](void* c, const void* a, const void* b, size_t n) { gloo::sum<T>(c, a, b, n); });
  options.setTag(tag);
  options.setTimeout(longest);
  gloo::allreduce(options);
}

}  // namespace

// mr_gloo_state is the state of a group. The thread of a call that was ended may return from Gloo late, or
// never, and keeps this state alive until it returns.
struct mr_gloo_state {
  Store store;
  std::string host;
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::vector<char> together;
  uint32_t tag = 0;

  std::mutex mu;
  std::condition_variable over;
  bool connected = false;
  bool ended = false;
  bool busy = false;
  std::string failed;

  void connect() {
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(host.c_str()));
    context->setTimeout(std::chrono::seconds(8));
    context->connectFullMesh(store, device);
    store.whole();
    std::lock_guard<std::mutex> lock(mu);
    connected = true;
    if (ended) context->closeConnections();
  }

  void sum(int dtype) {
    char* data = together.data();
    const int64_t nbytes = static_cast<int64_t>(together.size());
    switch (dtype) {
      case MR_F32:
        sum_here<float>(context, data, nbytes, tag++);
        return;
      case MR_F64:
        sum_here<double>(context, data, nbytes, tag++);
        return;
      case MR_I64:
        sum_here<int64_t>(context, data, nbytes, tag++);
        return;
      case MR_U8:
        sum_here<uint8_t>(context, data, nbytes, tag++);
        return;
      default:
        throw std::invalid_argument("elements of this type have no sum");
    }
  }

  // run does the work on a new thread and waits for it; it throws at once if the group ends meanwhile.
  template <class F>
  static void run(const std::shared_ptr<mr_gloo_state>& state, F work) {
    std::unique_lock<std::mutex> lock(state->mu);
    if (state->ended) throw std::runtime_error("the group has ended");
    state->busy = true;
    state->failed.clear();
    std::thread([state, work] {
      std::string failed;
      try {
        work(*state);
      } catch (const std::exception& e) {
        failed = e.what();
        if (failed.empty()) failed = "an exception without a text";
      }
      std::lock_guard<std::mutex> lock(state->mu);
      state->failed = failed;
      state->busy = false;
      state->over.notify_all();
    }).detach();
    state->over.wait(lock, [&] { return state->ended || !state->busy; });
    if (state->busy) throw std::runtime_error("the group has ended");
    if (!state->failed.empty()) throw std::runtime_error(state->failed);
  }
};

struct mr_gloo {
  std::shared_ptr<mr_gloo_state> state;
};

mr_gloo* mr_gloo_new(int rank, int size, const char* host) {
  return mr::guarded<mr_gloo*>(nullptr, [&] {
    auto group = std::make_unique<mr_gloo>();
    group->state = std::make_shared<mr_gloo_state>();
    group->state->host = host;
    group->state->context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    return group.release();
  });
}

const void* mr_gloo_said(mr_gloo* group, int64_t* nbytes) {
  return mr::guarded<const void*>(nullptr, [&] {
    const std::string& said = group->state->store.said();
    *nbytes = static_cast<int64_t>(said.size());
    return static_cast<const void*>(said.data());
  });
}

int mr_gloo_told(mr_gloo* group, const void* data, int64_t nbytes) {
  return mr::guarded<int>(1, [&] {
    group->state->store.told(static_cast<const char*>(data), nbytes);
    return 0;
  });
}

int mr_gloo_connect(mr_gloo* group) {
  return mr::guarded<int>(1, [&] {
    mr_gloo_state::run(group->state, [](mr_gloo_state& state) { state.connect(); });
    return 0;
  });
}

int mr_gloo_sum(mr_gloo* group, void* const* data, const int64_t* nbytes, int64_t n, int dtype) {
  return mr::guarded<int>(1, [&] {
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) total += nbytes[i];
    if (total == 0) return 0;
    auto& together = group->state->together;
    together.resize(total);
    char* at = together.data();
    for (int64_t i = 0; i < n; at += nbytes[i++]) std::memcpy(at, data[i], nbytes[i]);
    mr_gloo_state::run(group->state, [dtype](mr_gloo_state& state) { state.sum(dtype); });
    at = together.data();
    for (int64_t i = 0; i < n; at += nbytes[i++]) std::memcpy(data[i], at, nbytes[i]);
    return 0;
  });
}

void mr_gloo_end(mr_gloo* group) {
  mr::guarded<int>(1, [&] {
    auto& state = *group->state;
    state.store.end();
    std::lock_guard<std::mutex> lock(state.mu);
    if (state.connected && !state.ended) state.context->closeConnections();
    state.ended = true;
    state.over.notify_all();
    return 0;
  });
}

void mr_gloo_free(mr_gloo* group) { delete group; }
