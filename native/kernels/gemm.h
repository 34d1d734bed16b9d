// gemm.h: matrix products for the sizes of a pipeline's micro-batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace mr::gemm {

// Factor is a matrix of floats whose rows begin `apart` floats apart; if `turned`, its columns do.
struct Factor {
  const float* at;
  int64_t apart;
  bool turned;
};

// Addend is what a product is added to: rows of floats that begin `apart` floats apart, or one `row` that
// is added to every row of the product, or both. A null pointer adds nothing.
struct Addend {
  const float* at = nullptr;
  int64_t apart = 0;
  const float* row = nullptr;
};

// Finish is called with each part of a product that is done, while it is in the cache: rows from `row` up to
// last_row and columns from `column` up to last_column.
using Finish = std::function<void(int64_t row, int64_t last_row, int64_t column, int64_t last_column)>;

// Panels is a second factor copied into the order in which it is read. Every 256 terms are stored as panels
// of 32 columns, each with one term's columns behind the other's.
struct Panels {
  const float* at;
  int64_t terms, columns;
};

// fits says whether this machine has the vectors that multiply is written for.
bool fits();

// multiply writes c = alpha a b + plus, of m rows and n columns with k terms to each sum; rows of
// c begin `apart` floats apart. plus may be c. It may be called only where fits(). It uses as many threads as
// libtorch's operators may; the bits are the same for any number.
void multiply(int64_t m, int64_t n, int64_t k, float alpha, Factor a, Factor b, Addend plus, float* c,
              int64_t apart, const Finish& finish = {});

// panels_size is the number of floats that pack needs: both sides are rounded up, to 16 terms and 32 columns.
int64_t panels_size(int64_t terms, int64_t columns);
// pack copies b into panels at `to`, which begins at a multiple of 64 bytes.
Panels pack(Factor b, int64_t terms, int64_t columns, float* to);

// multiply_packed is multiply on the calling thread, with the first n columns of b and its terms from
// `term` up to last_term. a.at must point at the terms from `term` on.
void multiply_packed(int64_t m, int64_t n, int64_t term, int64_t last_term, float alpha, Factor a,
                     const Panels& b, Addend plus, float* c, int64_t apart);

// write_product writes c = a b and calls finish with each part of it. Where multiply cannot be used, libtorch
// computes the product, and finish is called once, with the whole.
void write_product(at::Tensor& c, const at::Tensor& a, const at::Tensor& b, const Finish& finish);

}  // namespace mr::gemm
