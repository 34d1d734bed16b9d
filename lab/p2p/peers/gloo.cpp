// gloo.cpp: two processes that send each other messages by Gloo, as PyTorch uses it (c10d). See player.go
// for the protocol. The two connect by the file FILE, the only argument.
#define USE_C10D_GLOO
#include <sys/wait.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "player.h"

namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

Group meet(const char* file, int rank) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  options->timeout = std::chrono::seconds(60);
  return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::FileStore>(file, 2), rank, 2, options);
}

void send(Group& group, int rank, at::Tensor& data) {
  std::vector<at::Tensor> one{data};
  group->send(one, 1 - rank, 0)->wait();
}

void take(Group& group, int rank, at::Tensor& room) {
  std::vector<at::Tensor> one{room};
  group->recv(one, 1 - rank, 0)->wait();
}

// play carries out one request. For arrive, rank 1 returns when the message arrived, and rank 0 when it was sent.
double play(Group& group, int rank, const request& r) {
  auto room = at::zeros({r.bytes}, at::kByte);
  const double began = now();
  const std::string what = r.what;
  if (what == "turns") {
    for (long i = 0; i < r.count; i++) {
      if (rank == 0) send(group, rank, room);
      take(group, rank, room);
      if (rank == 1) send(group, rank, room);
    }
  } else if (what == "sum") {
    auto vector = at::zeros({r.bytes / 4}, at::kFloat);
    std::vector<at::Tensor> one{vector};
    for (long i = 0; i < r.count; i++) group->allreduce(one)->wait();
  } else {
    std::vector<at::Tensor> one{room};
    if (rank == 0) {
      auto sent = group->send(one, 1, 0);
      compute(began + r.compute_s);
      sent->wait();
      return began;
    }
    double at = 0;
    std::thread waits([&] {
      take(group, rank, room);
      at = now();
    });
    compute(began + r.compute_s);
    waits.join();
    return at;
  }
  return now() - began;
}

int first(Group& group, FILE* to, FILE* from) {
  printf("{\"name\": \"player\"}\n");
  fflush(stdout);
  char line[256], said[256];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    request r;
    if (!parse(line, &r)) return 2;
    fputs(line, to);
    fflush(to);
    if (fgets(said, sizeof said, from) == nullptr) return 1;
    double took = play(group, 0, r);
    if (fgets(said, sizeof said, from) == nullptr) return 1;
    if (std::string(r.what) == "arrive") took = atof(said) - took;
    answer(took);
  }
  return 0;
}

int second(Group& group, FILE* from, FILE* to) {
  char line[256];
  while (fgets(line, sizeof line, from) != nullptr) {
    request r;
    if (!parse(line, &r)) return 2;
    fputs("ready\n", to);
    fflush(to);
    fprintf(to, "%.9f\n", play(group, 1, r));
    fflush(to);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int there[2], back[2];
  if (argc != 2 || pipe(there) != 0 || pipe(back) != 0) return 2;
  const pid_t other = fork();
  at::set_num_threads(1);
  if (other == 0) {
    close(there[1]);
    close(back[0]);
    auto group = meet(argv[1], 1);
    _exit(second(group, fdopen(there[0], "r"), fdopen(back[1], "w")));
  }
  close(there[0]);
  close(back[1]);
  auto group = meet(argv[1], 0);
  FILE* to = fdopen(there[1], "w");
  const int code = first(group, to, fdopen(back[0], "r"));
  fclose(to);
  int status = 0;
  waitpid(other, &status, 0);
  return code != 0 ? code : WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
