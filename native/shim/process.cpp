// process.cpp: what concerns the whole process or a thread: errors, threads, which libraries are loaded; and
// the sum of two buffers that collectives need.

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <cstring>
#include <mutex>
#include <sstream>

#include "internal.h"
#include "kernels.h"

namespace mr {

std::string& error_slot() {
  static thread_local std::string text;
  return text;
}

// set_error keeps the first line only: libtorch adds hints and stack traces behind it.
void set_error(const std::string& text) {
  std::string& slot = error_slot();
  slot = text.substr(0, text.find('\n'));
  while (!slot.empty() && (slot.back() == ' ' || slot.back() == '.')) slot.pop_back();
}

}  // namespace mr

namespace {

// symbol is a function of a loaded library, or null. Each BLAS has its own functions for threads, and which
// BLAS is loaded is known only at run time.
template <class F>
F symbol(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
}

void set_blas_threads(int n) {
  using SetInt = void (*)(int);
  using SetLong = void (*)(int64_t);
  static const SetInt openblas = symbol<SetInt>("openblas_set_num_threads");
  static const SetLong blis = symbol<SetLong>("bli_thread_set_num_threads");
  static const SetInt mkl = symbol<SetInt>("MKL_Set_Num_Threads");
  if (openblas != nullptr) openblas(n);
  if (blis != nullptr) blis(n);
  if (mkl != nullptr) mkl(n);
}

// file_of is the library file that has the code at an address; "" if there is none.
std::string file_of(const void* address) {
  Dl_info info;
  return address != nullptr && dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// describe_blas writes the file of the BLAS that libtorch uses, and what each BLAS in the process says of
// itself. There can be several, since a LAPACK brings its own. libtorch calls the one whose sgemm_ is found
// from here, because both search the libraries in the same order.
void describe_blas(std::ostream& out) {
  using Text = const char* (*)();
  using Arch = const char* (*)(int64_t);
  using Query = int64_t (*)();
  out << "blas_file=" << file_of(dlsym(RTLD_DEFAULT, "sgemm_")) << '\n';
  if (const auto config = symbol<Text>("openblas_get_config")) out << "openblas_config=" << config() << '\n';
  if (const auto core = symbol<Text>("openblas_get_corename")) out << "openblas_core=" << core() << '\n';
  if (const auto version = symbol<Text>("bli_info_get_version_str"))
    out << "blis_config=BLIS " << version() << '\n';
  const auto query = symbol<Query>("bli_arch_query_id");
  const auto name = symbol<Arch>("bli_arch_string");
  if (query != nullptr && name != nullptr) out << "blis_core=" << name(query()) << '\n';
  if (at::hasMKL()) out << "mkl_config=" << at::get_mkl_version() << '\n';
}

template <class T>
void sum(char* dst, const char* src, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    T a, b;
    std::memcpy(&a, dst + i * sizeof(T), sizeof(T));
    std::memcpy(&b, src + i * sizeof(T), sizeof(T));
    a += b;
    std::memcpy(dst + i * sizeof(T), &a, sizeof(T));
  }
}

}  // namespace

int mr_abi_version(void) { return MR_ABI_VERSION; }

const char* mr_error(void) { return mr::error_slot().c_str(); }

int mr_init(void) {
  return mr::guarded<int>(1, [] {
    static std::once_flag once;
    std::call_once(once, mr::install_allocator);
    return 0;
  });
}

const char* mr_info(void) {
  return mr::guarded<const char*>(nullptr, [] {
    static thread_local std::string text;
    std::ostringstream out;
    out << "torch=" << TORCH_VERSION << '\n';
    out << "library=" << file_of(reinterpret_cast<const void*>(&at::get_num_threads)) << '\n';
    out << "mkldnn=" << (at::hasMKLDNN() ? at::get_mkldnn_version() : "none") << '\n';
    out << "openmp=" << at::get_openmp_version() << '\n';
    out << "threads=" << at::get_num_threads() << '\n';
    out << "built_against=" << MR_BUILT_AGAINST << '\n';
    out << "sources=" << MR_SOURCES << '\n';
    out << "kernels=" << (mr::kernels() == nullptr ? "none" : mr::kernels()->name()) << '\n';
    describe_blas(out);
    text = out.str();
    return text.c_str();
  });
}

int mr_set_threads(int n) {
  return mr::guarded<int>(1, [&] {
    if (n < 1) throw std::invalid_argument("threads " + std::to_string(n) + " is less than 1");
    at::set_num_threads(n);
    set_blas_threads(n);
    return 0;
  });
}

int mr_sum_into(void* dst, const void* src, int64_t nbytes, int dtype) {
  char* d = static_cast<char*>(dst);
  const char* s = static_cast<const char*>(src);
  switch (dtype) {
    case MR_F32:
      sum<float>(d, s, nbytes / 4);
      return 0;
    case MR_F64:
      sum<double>(d, s, nbytes / 8);
      return 0;
    case MR_I64:
      sum<int64_t>(d, s, nbytes / 8);
      return 0;
    case MR_U8:
      sum<uint8_t>(d, s, nbytes);
      return 0;
    default:
      mr::set_error("elements of this type have no sum");
      return 1;
  }
}
