// gemm.h: matrix products for the sizes of a pipeline's micro-batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace mr::gemm {

// Factor is a matrix of floats whose rows (turned: whose columns) lie so many floats apart.
struct Factor {
  const float* at;
  int64_t apart;
  bool turned;
};

// Addend is what a product is added to: rows of floats so many apart, and one row that stands
// for all of them; nothing where they are null.
struct Addend {
  const float* at = nullptr;
  int64_t apart = 0;
  const float* row = nullptr;
};

// Finish is called with rows and columns (from and up to) of a product that are done, while they
// are near.
using Finish = std::function<void(int64_t row, int64_t last_row, int64_t column, int64_t last_column)>;

// Panels is a second factor in the order in which it is read: of every 256 terms, panels of 32
// columns, each with its terms one behind the other.
struct Panels {
  const float* at;
  int64_t terms, columns;
};

// fits says whether this machine has the vectors that multiply is written for.
bool fits();

// multiply writes c = alpha a b + plus, of m rows and n columns with k terms to each sum, rows of
// c so many floats apart. plus may be c. Only where fits(). It takes as many threads as libtorch's
// operators may; the bits are the same for any number.
void multiply(int64_t m, int64_t n, int64_t k, float alpha, Factor a, Factor b, Addend plus, float* c,
              int64_t apart, const Finish& finish = {});

// panels_size is how many floats pack writes, to a multiple of 64 bytes.
int64_t panels_size(int64_t terms, int64_t columns);
Panels pack(Factor b, int64_t terms, int64_t columns, float* to);

// multiply_packed is multiply on the calling thread, by the columns of b up to n and its terms from
// `term` up to last_term; a begins at `term` too.
void multiply_packed(int64_t m, int64_t n, int64_t term, int64_t last_term, float alpha, Factor a,
                     const Panels& b, Addend plus, float* c, int64_t apart);

// write_product is the same for matrices that are tensors; libtorch's own where multiply does not fit, and
// then finish is called once, with everything.
void write_product(at::Tensor& c, const at::Tensor& a, const at::Tensor& b, const Finish& finish);

}  // namespace mr::gemm
