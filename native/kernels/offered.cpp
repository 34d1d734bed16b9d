// offered.cpp: registers the kernels with the shim (shim/kernels.h) while the library is loaded.

#include "offered.h"

#include "gemm.h"

namespace {

constexpr mr::Kernels kKernels = {
    [] { return mr::gemm::fits() ? "AVX-512" : "without AVX-512"; },
    mr::whole_product,
    mr::sum_product,
    mr::linear_gelu,
    mr::scale_and_sum,
    mr::layer_norm,
    mr::layer_norm_back,
    mr::mask,
    mr::causal_attention,
    mr::max_pool,
};

const bool offered = [] {
  mr::offer(&kKernels);
  return true;
}();

}  // namespace
