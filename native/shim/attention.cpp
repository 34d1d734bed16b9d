// attention.cpp: causal self-attention between the two projections, forward and backward.
//
// Vaswani et al., Attention Is All You Need (2017), section 3.2, with the mask of a decoder:
//
//   s_ij = q_i . k_j / sqrt(d), j <= i;  p_i = softmax(s_i);  y_i = sum_j m_ij p_ij v_j
//
// m is a dropout mask, if there is one. Composed of libtorch's operators this copies q, k
// and v apart, fills and masks the half that nobody reads, and writes the scores four times.
// Here a block of rows of one head goes from q, k and v where they lie, in the output of
// the projection, to y where the next projection reads it; only j <= i is computed, up to
// the corner of a block. Backward writes the gradients of q, k and v side by side likewise.
//
// Rows and heads are computed one by one with the same calls wherever they are, so slices
// of a micro-batch have the bits of the whole.
//
// Held between forward and backward, in elements: the input, and p: rows heads t t.

#include <dlfcn.h>

#include <cmath>
#include <limits>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "internal.h"
#include "simd.h"

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using Optional = decltype(std::declval<const c10::IValue&>().toOptional<Tensor>());

// The BLAS that libtorch uses, if it shows itself: a libtorch with its BLAS inside may not.
using Sgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
                       const float*, const int*, const float*, float*, const int*);

Sgemm sgemm() {
  static const Sgemm found = reinterpret_cast<Sgemm>(dlsym(RTLD_DEFAULT, "sgemm_"));
  return found;
}

// Matrix is a view of rows of floats that lie so many apart.
struct Matrix {
  float* at;
  int64_t apart;
};

// c = alpha a b + beta c, c of m rows and n columns, with k terms to each sum. BLAS counts
// by columns: to it the matrices are transposed, and so is their product.
void product(bool a_turned, bool b_turned, int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, Matrix c) {
  const char ta = a_turned ? 'T' : 'N', tb = b_turned ? 'T' : 'N';
  const int rows = m, columns = n, terms = k, la = a.apart, lb = b.apart, lc = c.apart;
  sgemm()(&tb, &ta, &columns, &rows, &terms, &alpha, b.at, &lb, a.at, &la, &beta, c.at, &lc);
}

// Rows of one head that are computed together.
constexpr int64_t kBlock = 32;

struct Shape {
  int64_t rows, t, width, heads, d;
  float scale;
};

Shape shape_of(const Tensor& qkv, int64_t heads) {
  const bool fits = qkv.dim() == 3 && heads > 0 && qkv.size(2) % (3 * heads) == 0;
  if (!fits) throw std::invalid_argument("causal_attention takes [rows, positions, 3 width] with q, k and v side by side, each of whole heads");
  const int64_t width = qkv.size(2) / 3, d = width / heads;
  return {qkv.size(0), qkv.size(1), width, heads, d, static_cast<float>(1 / std::sqrt(static_cast<double>(d)))};
}

// softmax turns n scores into probabilities, in place.
inline void softmax(float* s, int64_t n) {
  float most = s[0];
#pragma omp simd reduction(max : most)
  for (int64_t j = 0; j < n; ++j) most = s[j] > most ? s[j] : most;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) {
    const float e = mr::simd::exp(s[j] - most);
    s[j] = e;
    sum += e;
  }
  const float by = 1 / sum;
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) s[j] *= by;
}

// Head is where one head of one row lies.
struct Head {
  Matrix q, k, v;
  Head(float* qkv, const Shape& s, int64_t row, int64_t head) {
    float* at = qkv + row * s.t * 3 * s.width + head * s.d;
    q = {at, 3 * s.width};
    k = {at + s.width, 3 * s.width};
    v = {at + 2 * s.width, 3 * s.width};
  }
};

Matrix from_row(Matrix m, int64_t row) { return {m.at + row * m.apart, m.apart}; }

// The positions of a head, block by block, from the first or from the last.
template <class F>
void blocks(int64_t t, bool backwards, F f) {
  const int64_t n = (t + kBlock - 1) / kBlock;
  for (int64_t b = 0; b < n; ++b) {
    const int64_t from = (backwards ? n - 1 - b : b) * kBlock;
    f(from, std::min(from + kBlock, t));
  }
}

template <class F>
void each_head(const Shape& s, F f) {
  at::parallel_for(0, s.rows * s.heads, 1, [&](int64_t from, int64_t to) {
    std::vector<float> scratch(2 * std::min(kBlock, s.t) * s.t);
    for (int64_t i = from; i < to; ++i) f(i / s.heads, i % s.heads, scratch.data());
  });
}

// times multiplies n rows of a, so many columns each, by mask into out; a itself without one.
Matrix times(Matrix a, const float* mask, int64_t n, int64_t columns, int64_t t, float* out) {
  if (mask == nullptr) return a;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < columns; ++j) out[i * t + j] = a.at[i * a.apart + j] * mask[i * t + j];
  }
  return {out, t};
}

void forward_head(const Shape& s, const Head& h, float* p, const float* mask, Matrix y, float* scratch) {
  blocks(s.t, false, [&](int64_t from, int64_t to) {
    const int64_t n = to - from;
    float* block = p + from * s.t;
    product(false, true, n, to, s.d, s.scale, from_row(h.q, from), h.k, 0, {block, s.t});
    mr::simd::widest([&] {
      for (int64_t i = from; i < to; ++i) {
        float* row = p + i * s.t;
        softmax(row, i + 1);
        for (int64_t j = i + 1; j < to; ++j) row[j] = 0;
      }
    });
    const Matrix weights = times({block, s.t}, mask == nullptr ? nullptr : mask + from * s.t, n, to, s.t, scratch);
    product(false, false, n, s.d, to, 1, weights, h.v, 0, from_row(y, from));
  });
}

// backward_head goes from the last block to the first: the last one reaches all of k and v, so
// it writes their gradients, and the others add to them.
void backward_head(const Shape& s, const Head& h, float* p, const float* mask, Matrix dy, const Head& d, float* scratch) {
  blocks(s.t, true, [&](int64_t from, int64_t to) {
    const int64_t n = to - from;
    const float add = to == s.t ? 0 : 1;
    const float* m = mask == nullptr ? nullptr : mask + from * s.t;
    float* block = p + from * s.t;
    float* ds = scratch;
    product(false, true, n, to, s.d, 1, from_row(dy, from), h.v, 0, {ds, s.t});
    times({ds, s.t}, m, n, to, s.t, ds);
    mr::simd::widest([&] {
      for (int64_t i = 0; i < n; ++i) {
        const float* pi = block + i * s.t;
        float* di = ds + i * s.t;
        float along = 0;
        const int64_t seen = from + i + 1;
#pragma omp simd reduction(+ : along)
        for (int64_t j = 0; j < seen; ++j) along += pi[j] * di[j];
#pragma omp simd
        for (int64_t j = 0; j < seen; ++j) di[j] = pi[j] * (di[j] - along);
        for (int64_t j = seen; j < to; ++j) di[j] = 0;
      }
    });
    product(false, false, n, s.d, to, s.scale, {ds, s.t}, h.k, 0, from_row(d.q, from));
    product(true, false, to, s.d, n, s.scale, {ds, s.t}, from_row(h.q, from), add, d.k);
    const Matrix weights = times({block, s.t}, m, n, to, s.t, scratch + n * s.t);
    product(true, false, to, s.d, n, 1, weights, from_row(dy, from), add, d.v);
  });
}

const float* mask_of(const Tensor& mask, const Shape& s, int64_t row, int64_t head) {
  return mask.defined() ? mask.data_ptr<float>() + (row * s.heads + head) * s.t * s.t : nullptr;
}

struct CausalAttention : Function<CausalAttention> {
  static Tensor forward(AutogradContext* ctx, const Tensor& qkv, int64_t heads, const Optional& drop) {
    const Tensor mask = drop.has_value() ? *drop : Tensor();
    const Shape s = shape_of(qkv, heads);
    const Tensor p = at::empty({s.rows * heads, s.t, s.t}, qkv.options()), y = at::empty({s.rows, s.t, s.width}, qkv.options());
    each_head(s, [&](int64_t row, int64_t head, float* scratch) {
      forward_head(s, Head(qkv.data_ptr<float>(), s, row, head), p.data_ptr<float>() + (row * heads + head) * s.t * s.t,
                   mask_of(mask, s, row, head), {y.data_ptr<float>() + row * s.t * s.width + head * s.d, s.width}, scratch);
    });
    ctx->save_for_backward({qkv, mask});
    ctx->saved_data["p"] = p;
    ctx->saved_data["heads"] = heads;
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor qkv = saved[0], mask = saved[1], p = ctx->saved_data["p"].toTensor(), g = grads[0].contiguous();
    const int64_t heads = ctx->saved_data["heads"].toInt();
    const Shape s = shape_of(qkv, heads);
    const Tensor back = at::empty_like(qkv);
    each_head(s, [&](int64_t row, int64_t head, float* scratch) {
      backward_head(s, Head(qkv.data_ptr<float>(), s, row, head), p.data_ptr<float>() + (row * heads + head) * s.t * s.t,
                    mask_of(mask, s, row, head), {g.data_ptr<float>() + row * s.t * s.width + head * s.d, s.width},
                    Head(back.data_ptr<float>(), s, row, head), scratch);
    });
    return {back, Tensor(), Tensor()};
  }
};

// composed is the same of libtorch's operators, for other devices and element types and
// where no BLAS shows itself.
Tensor composed(const Tensor& qkv, int64_t heads, const Tensor& mask) {
  const Shape s = shape_of(qkv, heads);
  const Tensor apart = qkv.view({s.rows, s.t, 3, heads, s.d}).permute({2, 0, 3, 1, 4}).reshape({3, s.rows * heads, s.t, s.d});
  const Tensor future = at::full({s.t, s.t}, -std::numeric_limits<double>::infinity(), qkv.options()).triu(1);
  Tensor p = at::baddbmm(future, apart[0], apart[1].transpose(1, 2), 1, 1 / std::sqrt(static_cast<double>(s.d))).softmax(-1);
  if (mask.defined()) p = p * mask.view(p.sizes());
  return p.bmm(apart[2]).view({s.rows, heads, s.t, s.d}).transpose(1, 2).reshape({s.rows, s.t, s.width});
}

Tensor causal_attention(const Tensor& qkv, int64_t heads, const Optional& drop) {
  const Shape s = shape_of(qkv, heads);
  Tensor mask;
  if (drop.has_value() && drop->defined()) {
    mask = drop->contiguous();
    if (mask.numel() != s.rows * heads * s.t * s.t || mask.scalar_type() != qkv.scalar_type()) {
      throw std::invalid_argument("causal_attention takes a mask of [rows, heads, positions, positions] of its input's element type");
    }
  }
  if (sgemm() == nullptr || !qkv.is_cpu() || qkv.scalar_type() != at::kFloat) return composed(qkv, heads, mask);
  return CausalAttention::apply(qkv.contiguous(), heads, mask.defined() ? Optional(mask) : Optional());
}

TORCH_LIBRARY_FRAGMENT(millrace, m) {
  m.def("causal_attention(Tensor qkv, int heads, Tensor? mask=None) -> Tensor", causal_attention);
}

}  // namespace
