// attention.cpp: causal self-attention, forward and backward. The projection to q, k and v before it and the
// projection of y behind it are computed elsewhere.
//
// Vaswani et al., Attention Is All You Need (2017), section 3.2, with the mask of a decoder:
//
//   s_ij = q_i . k_j / sqrt(d), j <= i;  p_i = softmax(s_i);  y_i = sum_j m_ij p_ij v_j
//
// d is the width of a head, and m a dropout mask, if there is one (all ones otherwise). When this is composed
// of libtorch's operators, they copy q, k and v apart, compute and mask the scores with j > i, which nobody
// reads, and write the scores four times. Here q, k and v are read where they lie, in the output of the first
// projection, and y is written where the next projection reads it, one block of rows of one head at a time.
// Of the scores with j > i only those inside a block's square on the diagonal are computed. Backward
// likewise writes the gradients of q, k and v side by side. Products are computed by gemm.cpp where the
// processor has AVX-512, with k and v copied once for all blocks of a head, and by BLAS elsewhere.
//
// Every row and head is computed by itself with the same calls, wherever it lies. So a slice of a micro-batch
// gives the same bits as in the whole, with any number of threads.
//
// These are kept between forward and backward: the input, the mask, and p, which has rows * heads * t * t
// elements for t positions.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gemm.h"
#include "offered.h"
#include "room.h"
#include "simd.h"

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using Optional = decltype(std::declval<const c10::IValue&>().toOptional<Tensor>());

// sgemm is the BLAS product that libtorch uses, or null: a libtorch with BLAS linked into it may not export
// the symbol.
using Sgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*,
                       const float*, const int*, const float*, const int*, const float*, float*, const int*);

Sgemm sgemm() {
  static const Sgemm found = reinterpret_cast<Sgemm>(dlsym(RTLD_DEFAULT, "sgemm_"));
  return found;
}

// Matrix is a view of rows of floats, which begin `apart` floats apart.
struct Matrix {
  float* at;
  int64_t apart;
};

// Side is the second factor of several products. It is a transposed view of `from` if `turned`.
struct Side {
  Matrix from;
  bool turned;
  mr::gemm::Panels panels;  // where gemm::fits()

  // The constructor copies a factor of so many terms (rows) and columns into panels at `room`, and moves
  // `room` behind them, if gemm::fits(). Otherwise it copies nothing.
  Side(Matrix from, bool turned, int64_t terms, int64_t columns, float*& room)
      : from(from), turned(turned), panels{} {
    if (!mr::gemm::fits()) return;
    panels = mr::gemm::pack({from.at, from.apart, turned}, terms, columns, room);
    room += mr::gemm::panels_size(terms, columns);
  }
};

// product computes c = alpha a b, where c has m rows and n columns and the sums go over the terms of b from
// `term` up to last_term. BLAS stores matrices by columns: it sees all three as transposed, so a and b change
// places.
void product(int64_t m, int64_t n, int64_t term, int64_t last_term, float alpha, Matrix a, bool a_turned,
             const Side& b, Matrix c) {
  if (mr::gemm::fits()) {
    mr::gemm::multiply_packed(m, n, term, last_term, alpha, {a.at, a.apart, a_turned}, b.panels, {}, c.at,
                              c.apart);
    return;
  }
  const char ta = a_turned ? 'T' : 'N', tb = b.turned ? 'T' : 'N';
  const int rows = m, columns = n, terms = last_term - term, la = a.apart, lb = b.from.apart, lc = c.apart;
  const float none = 0, *const from = b.from.at + (b.turned ? term : term * b.from.apart);
  sgemm()(&tb, &ta, &columns, &rows, &terms, &alpha, from, &lb, a.at, &la, &none, c.at, &lc);
}

// kBlock is how many rows of one head are computed together.
constexpr int64_t kBlock = 32;

struct Shape {
  int64_t rows, t, width, heads, d;
  float scale;
};

Shape shape_of(const Tensor& qkv, int64_t heads) {
  const int64_t width = qkv.size(2) / 3, d = width / heads;
  return {qkv.size(0), qkv.size(1), width,
          heads,       d,           static_cast<float>(1 / std::sqrt(static_cast<double>(d)))};
}

// Lanes is 16 floats that are compared or added lane by lane. When the compiler reduces a loop itself, it
// joins the last sixteen partial results one by one, which is slow for rows as short as these.
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t Places __attribute__((vector_size(64)));
constexpr int32_t kLanes = 16;

inline const Lanes& lanes(const float* at) { return *reinterpret_cast<const Lanes*>(at); }

// fold joins all lanes into one value: first each lane of the lower half with one of the upper half, and so
// on.
template <class F>
inline float fold(const Lanes& x, F join) {
  float part[kLanes];
  std::memcpy(part, &x, sizeof part);
#pragma GCC unroll 4
  for (int32_t half = kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int32_t l = 0; l < half; ++l) part[l] = join(part[l], part[l + half]);
  }
  return part[0];
}

inline float larger(float a, float b) { return a > b ? a : b; }
inline float plus(float a, float b) { return a + b; }

// softmax turns the first n of `wide` scores into probabilities, in place, and sets the others to 0.
inline void softmax(float* s, int32_t n, int32_t wide) {
  const int32_t whole = wide / kLanes * kLanes;
  Lanes all = Lanes{} + s[0];
  Places place = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int32_t j = 0; j < whole; j += kLanes, place += kLanes) {
    const Lanes seen = place < n ? lanes(s + j) : all;
    all = seen > all ? seen : all;
  }
  float most = fold(all, larger);
  for (int32_t j = whole; j < n; ++j) most = larger(s[j], most);
#pragma omp simd
  for (int32_t j = 0; j < wide; ++j) {
    const float e = mr::simd::exp(s[j] - most);
    s[j] = j < n ? e : 0;
  }
  all = Lanes{};
  for (int32_t j = 0; j < whole; j += kLanes) all += lanes(s + j);
  float sum = fold(all, plus);
  for (int32_t j = whole; j < n; ++j) sum += s[j];
  const float by = 1 / sum;
#pragma omp simd
  for (int32_t j = 0; j < wide; ++j) s[j] *= by;
}

// go_back turns the gradients g of n probabilities p into the gradients of their scores, in place. Right of
// the diagonal p is 0, and so is the result.
inline void go_back(const float* p, float* g, int32_t n) {
  const int32_t whole = n / kLanes * kLanes;
  Lanes all = Lanes{};
  for (int32_t j = 0; j < whole; j += kLanes) all += lanes(p + j) * lanes(g + j);
  float along = fold(all, plus);
  for (int32_t j = whole; j < n; ++j) along += p[j] * g[j];
#pragma omp simd
  for (int32_t j = 0; j < n; ++j) g[j] = p[j] * (g[j] - along);
}

// Head says where q, k and v of one head lie, for one row of the micro-batch.
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

// blocks calls f for each block of the t positions, with its first position and the one behind its last.
template <class F>
void blocks(int64_t t, F f) {
  for (int64_t from = 0; from < t; from += kBlock) f(from, std::min(from + kBlock, t));
}

// room_of is how many floats of scratch memory a head needs: four Sides, and two matrices of t by t.
int64_t room_of(const Shape& s) {
  return mr::gemm::panels_size(s.d, s.t) + 3 * mr::gemm::panels_size(s.t, s.d) + 2 * s.t * s.t;
}

template <class F>
void each_head(const Shape& s, F f) {
  at::parallel_for(0, s.rows * s.heads, 1, [&](int64_t from, int64_t to) {
    static thread_local mr::Room room;
    float* const at = room.floats(room_of(s));
    for (int64_t i = from; i < to; ++i) f(i / s.heads, i % s.heads, at);
  });
}

// times writes a times mask, element by element, to out and returns it, for n rows of so many columns. Rows
// of mask and out are t apart. Without a mask it returns a.
Matrix times(Matrix a, const float* mask, int64_t n, int64_t columns, int64_t t, float* out) {
  if (mask == nullptr) return a;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < columns; ++j) out[i * t + j] = a.at[i * a.apart + j] * mask[i * t + j];
  }
  return {out, t};
}

void forward_head(const Shape& s, const Head& h, float* p, const float* mask, Matrix y, float* room) {
  const Side keys(h.k, true, s.d, s.t, room), values(h.v, false, s.t, s.d, room);
  blocks(s.t, [&](int64_t from, int64_t to) {
    const int64_t n = to - from;
    float* block = p + from * s.t;
    product(n, to, 0, s.d, s.scale, from_row(h.q, from), false, keys, {block, s.t});
    mr::simd::widest([&] {
      for (int64_t i = 0; i < n; ++i)
        softmax(block + i * s.t, static_cast<int32_t>(from + i + 1), static_cast<int32_t>(to));
    });
    const Matrix weights =
        times({block, s.t}, mask == nullptr ? nullptr : mask + from * s.t, n, to, s.t, room);
    product(n, s.d, 0, to, 1, weights, false, values, from_row(y, from));
  });
}

// backward_head computes the gradients of all scores and of q first. Then it computes the gradients of each
// block of k and v from the rows that attend to the block: its own and the later ones.
void backward_head(const Shape& s, const Head& h, float* p, const float* mask, Matrix dy, const Head& d,
                   float* room) {
  const Side values(h.v, true, s.d, s.t, room), keys(h.k, false, s.t, s.d, room),
      queries(h.q, false, s.t, s.d, room), above(dy, false, s.t, s.d, room);
  float *const ds = room, *const weights = mask == nullptr ? p : room + s.t * s.t;
  blocks(s.t, [&](int64_t from, int64_t to) {
    const int64_t n = to - from;
    const float* m = mask == nullptr ? nullptr : mask + from * s.t;
    float *const block = p + from * s.t, *const di = ds + from * s.t;
    product(n, to, 0, s.d, 1, from_row(dy, from), false, values, {di, s.t});
    times({di, s.t}, m, n, to, s.t, di);
    times({block, s.t}, m, n, to, s.t, weights + from * s.t);
    mr::simd::widest([&] {
      for (int64_t i = 0; i < n; ++i) go_back(block + i * s.t, di + i * s.t, static_cast<int32_t>(to));
    });
    product(n, s.d, 0, to, s.scale, {di, s.t}, false, keys, from_row(d.q, from));
  });
  blocks(s.t, [&](int64_t from, int64_t to) {
    const int64_t corner = from * s.t + from;
    product(to - from, s.d, from, s.t, s.scale, {ds + corner, s.t}, true, queries, from_row(d.k, from));
    product(to - from, s.d, from, s.t, 1, {weights + corner, s.t}, true, above, from_row(d.v, from));
  });
}

const float* mask_of(const Tensor& mask, const Shape& s, int64_t row, int64_t head) {
  return mask.defined() ? mask.data_ptr<float>() + (row * s.heads + head) * s.t * s.t : nullptr;
}

struct CausalAttention : Function<CausalAttention> {
  static Tensor forward(AutogradContext* ctx, const Tensor& qkv, int64_t heads, const Optional& drop) {
    const Tensor mask = drop.has_value() ? *drop : Tensor();
    const Shape s = shape_of(qkv, heads);
    const Tensor p = at::empty({s.rows * heads, s.t, s.t}, qkv.options()),
                 y = at::empty({s.rows, s.t, s.width}, qkv.options());
    each_head(s, [&](int64_t row, int64_t head, float* scratch) {
      forward_head(s, Head(qkv.data_ptr<float>(), s, row, head),
                   p.data_ptr<float>() + (row * heads + head) * s.t * s.t, mask_of(mask, s, row, head),
                   {y.data_ptr<float>() + row * s.t * s.width + head * s.d, s.width}, scratch);
    });
    ctx->save_for_backward({qkv, mask});
    ctx->saved_data["p"] = p;
    ctx->saved_data["heads"] = heads;
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor qkv = saved[0], mask = saved[1], p = ctx->saved_data["p"].toTensor(),
                 g = grads[0].contiguous();
    const int64_t heads = ctx->saved_data["heads"].toInt();
    const Shape s = shape_of(qkv, heads);
    const Tensor back = at::empty_like(qkv);
    each_head(s, [&](int64_t row, int64_t head, float* scratch) {
      backward_head(s, Head(qkv.data_ptr<float>(), s, row, head),
                    p.data_ptr<float>() + (row * heads + head) * s.t * s.t, mask_of(mask, s, row, head),
                    {g.data_ptr<float>() + row * s.t * s.width + head * s.d, s.width},
                    Head(back.data_ptr<float>(), s, row, head), scratch);
    });
    return {back, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor mr::causal_attention(const Tensor& qkv, int64_t heads, const Tensor& mask) {
  if ((sgemm() == nullptr && !mr::gemm::fits()) || !fast(qkv)) return {};
  return CausalAttention::apply(qkv.contiguous(), heads, mask.defined() ? Optional(mask) : Optional());
}
