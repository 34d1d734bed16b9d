// gemm.h: matrix products for the sizes of a pipeline's micro-batches.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace mr::gemm {

// Factor is a matrix of floats whose rows (turned: whose columns) lie so many floats apart.
struct Factor {
  const float* at;
  int64_t apart;
  bool turned;
};

// Addend is what a product is added to: rows of floats so many apart, 0 for one row that
// stands for all of them; nothing where at is null.
struct Addend {
  const float* at = nullptr;
  int64_t apart = 0;
};

// fits says whether this machine has the vectors that multiply is written for.
bool fits();

// multiply writes c = alpha a b + plus, of m rows and n columns with k terms to each sum, rows of
// c so many floats apart. plus may be c. Only where fits().
void multiply(int64_t m, int64_t n, int64_t k, float alpha, Factor a, Factor b, Addend plus, float* c, int64_t apart);

// The same for matrices that are tensors; libtorch's own where multiply does not fit.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
at::Tensor product_plus_row(const at::Tensor& a, const at::Tensor& b, const at::Tensor& row);
void add_product(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b);

}  // namespace mr::gemm
