// gemm.cpp: matrix products for the sizes of a pipeline's micro-batches.
//
// A library's product first copies both factors into the order in which its kernel reads them
// (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008). That pays for
// itself over thousands of rows. A micro-batch has a few hundred, and of a step of a small GPT
// OpenBLAS spent a seventh on copying, and on waiting for what it copied. Here the first factor is read where it
// lies, one float at a time for all lanes of a vector, and of the second only a panel of 32 columns
// is copied, which then stays in the first-level cache for all rows. While a tile is computed,
// the lines of the next one, of the next panel and of the result are fetched: what a
// micro-batch multiplies was last touched a whole micro-batch ago and is in no near cache.
//
// The kernel holds 12 rows by 32 columns of sums in registers. Each sum is taken in
// ascending order of its terms, 256 at a time, whatever the tile it lies in: the bits of a row
// depend on no other row and on no number of rows.
//
// For AVX-512 and one thread to an operator, which is what a pipeline's workers have; elsewhere
// libtorch's own products compute.

#include "gemm.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#if defined(__x86_64__) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC's own headers, its bug 105593
#include <immintrin.h>
#pragma GCC diagnostic pop
#define MR_GEMM 1
#endif

namespace mr::gemm {

using at::Tensor;

#ifdef MR_GEMM

#define MR_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma")))

namespace {

constexpr int kRows = 12;       // of a tile
constexpr int kColumns = 32;    // of a tile and a panel
constexpr int64_t kTerms = 256; // of a panel: 32 KiB
constexpr int64_t kTall = 384;  // rows that go by a panel: the first factor's then fit in the second-level cache
constexpr int64_t kLine = kTerms + 16;  // between the rows of a tile that is copied

// Columns says which of a tile's columns there are.
struct Columns {
  __mmask16 left, right;
};

MR_AVX512 inline __mmask16 first(int64_t n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1); }

// Ahead is what to fetch while a tile is computed: for every 16 terms 16 lines, so many floats
// apart, and so many floats on after each 16 terms. Nothing where at is null.
struct Ahead {
  const float* at = nullptr;
  int64_t line = 0, on = 0;
};

struct Tile {
  int64_t terms;
  const float* a;
  int64_t down, along;  // between rows and between terms of a
  const float* panel;
  Ahead first, second;  // of the first factor, of the second
  float alpha;
  Addend plus;
  float* c;
  int64_t apart;
  Columns columns;
};

// compute does a tile of R rows.
template <int R>
MR_AVX512 __attribute__((always_inline)) inline void compute(const Tile& t, int64_t down, int64_t along) {
  __m512 sum[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  const float *a = t.a, *b = t.panel, *first = t.first.at, *second = t.second.at;
  float* c = t.c;
  for (int64_t p = 0; p < t.terms; p += 16) {
    if (first != nullptr) {
      for (int i = 0; i < 16; ++i) __builtin_prefetch(first + i * t.first.line, 0, 2);
      first += t.first.on;
    }
    if (second != nullptr) {
      __builtin_prefetch(second, 0, 2);
      __builtin_prefetch(second + 16, 0, 2);
      second += t.second.line;
    }
    __builtin_prefetch(c, 1);
    __builtin_prefetch(c + 16, 1);
    c += t.apart;
    const float* const end = b + std::min<int64_t>(16, t.terms - p) * kColumns;
    for (; b != end; a += along, b += kColumns) {
      const __m512 left = _mm512_load_ps(b), right = _mm512_load_ps(b + 16);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const __m512 v = _mm512_set1_ps(a[r * down]);
        sum[r][0] = _mm512_fmadd_ps(v, left, sum[r][0]);
        sum[r][1] = _mm512_fmadd_ps(v, right, sum[r][1]);
      }
    }
  }
  const __m512 alpha = _mm512_set1_ps(t.alpha);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    __m512 left = _mm512_setzero_ps(), right = left;
    if (t.plus.at != nullptr) {
      left = _mm512_maskz_loadu_ps(t.columns.left, t.plus.at + r * t.plus.apart);
      right = _mm512_maskz_loadu_ps(t.columns.right, t.plus.at + r * t.plus.apart + 16);
    }
    _mm512_mask_storeu_ps(t.c + r * t.apart, t.columns.left, _mm512_fmadd_ps(alpha, sum[r][0], left));
    _mm512_mask_storeu_ps(t.c + r * t.apart + 16, t.columns.right, _mm512_fmadd_ps(alpha, sum[r][1], right));
  }
}

template <int R>
MR_AVX512 void by_rows(const Tile& t) {
  compute<R>(t, t.down, 1);
}

// A tile of a turned factor is copied, with its rows side by side.
template <int R>
MR_AVX512 void by_columns(const Tile& t) {
  compute<R>(t, 1, kRows);
}

using Compute = void (*)(const Tile&);

// Of tiles with 1 to 12 rows.
template <int... R>
constexpr std::pair<Compute, Compute> kernels_of(std::integer_sequence<int, R...>, int rows) {
  constexpr Compute straight[] = {by_rows<R + 1>...}, turned[] = {by_columns<R + 1>...};
  return {straight[rows - 1], turned[rows - 1]};
}

Compute kernel(int64_t rows, bool turned) {
  const auto both = kernels_of(std::make_integer_sequence<int, kRows>(), static_cast<int>(rows));
  return turned ? both.second : both.first;
}

// turn writes the transpose of 16 x 16 floats, of rows so many floats apart, into a panel. Rows
// and columns that are not there are zeros.
MR_AVX512 inline void turn(const float* from, int64_t apart, int64_t rows, __mmask16 columns, float* to) {
  __m512 x[16], y[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) x[i] = i < rows ? _mm512_maskz_loadu_ps(columns, from + i * apart) : _mm512_setzero_ps();
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    y[2 * i] = _mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]);
    y[2 * i + 1] = _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(y[i]), _mm512_castps_pd(y[i + 2])));
    x[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(y[i]), _mm512_castps_pd(y[i + 2])));
    x[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(y[i + 1]), _mm512_castps_pd(y[i + 3])));
    x[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(y[i + 1]), _mm512_castps_pd(y[i + 3])));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    y[i] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88);
    y[i + 4] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd);
    y[i + 8] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0x88);
    y[i + 12] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0xdd);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    _mm512_store_ps(to + i * kColumns, _mm512_shuffle_f32x4(y[i], y[i + 8], 0x88));
    _mm512_store_ps(to + (i + 8) * kColumns, _mm512_shuffle_f32x4(y[i], y[i + 8], 0xdd));
  }
}

// fill copies terms by n columns of b, from a term and a column on, into a panel.
MR_AVX512 void fill(const Factor& b, int64_t term, int64_t terms, int64_t column, int64_t n, float* panel) {
  if (b.turned) {
    for (int64_t j = 0; j < kColumns; j += 16) {
      for (int64_t p = 0; p < terms; p += 16) {
        turn(b.at + (column + j) * b.apart + term + p, b.apart, n - j, first(terms - p), panel + p * kColumns + j);
      }
    }
    return;
  }
  const __mmask16 left = first(n), right = first(n - 16);
  const float* from = b.at + term * b.apart + column;
  for (int64_t p = 0; p < terms; ++p, from += b.apart, panel += kColumns) {
    _mm512_store_ps(panel, _mm512_maskz_loadu_ps(left, from));
    _mm512_store_ps(panel + 16, _mm512_maskz_loadu_ps(right, from + 16));
  }
}

// Product is one call of multiply.
struct Product {
  int64_t m, n, k;
  float alpha;
  Factor a, b;
  Addend plus;
  float* c;
  int64_t apart;

  // part computes rows and columns from and up to.
  void part(int64_t row, int64_t last_row, int64_t column, int64_t last_column) const {
    alignas(64) float panel[kTerms * kColumns];
    static thread_local std::vector<float> tiles;
    if (copies() && tiles.empty()) tiles.resize(kTall * kLine);
    for (int64_t top = row; top < last_row; top += kTall) {
      const int64_t bottom = std::min(top + kTall, last_row);
      for (int64_t p = 0; p < k; p += kTerms) {
        const int64_t terms = std::min(kTerms, k - p);
        for (int64_t j = column; j < last_column; j += kColumns) {
          fill(b, p, terms, j, std::min<int64_t>(kColumns, last_column - j), panel);
          pass(top, bottom, p, terms, j, last_column, j == column, panel, tiles.data());
        }
      }
    }
  }

  // pass computes the tiles of a panel, from top to bottom.
  void pass(int64_t top, int64_t bottom, int64_t p, int64_t terms, int64_t j, int64_t last_column, bool fresh, const float* panel,
            float* tiles) const {
    const int64_t wide = std::min<int64_t>(kColumns, last_column - j), next = j + kColumns < last_column ? j + kColumns : -1;
    const Columns columns{first(wide), first(wide - 16)};
    int64_t at = 0;
    for (int64_t i = top; i < bottom; i += kRows, ++at) {
      const int64_t rows = std::min<int64_t>(kRows, bottom - i);
      const float* from = a.turned ? a.at + p * a.apart + i : a.at + i * a.apart + p;
      float* to = c + i * apart + j;
      Tile t{terms, from, a.apart, 1, panel, {}, {}, alpha, {to, apart}, to, apart, columns};
      if (p == 0) t.plus = plus.at == nullptr ? Addend{} : Addend{plus.at + i * plus.apart + j, plus.apart};
      if (copies()) {
        float* tile = tiles + at * kRows * kLine;
        if (fresh) keep(from, terms, rows, tile);
        t.a = tile;
        t.down = kLine;
      }
      if (fresh && i + kRows < bottom) {
        t.first = a.turned ? Ahead{from + kRows + rows - 1, a.apart, 16 * a.apart} : Ahead{from + kRows * a.apart, a.apart, 16};
      }
      if (next >= 0 && at < 16) {
        t.second = b.turned ? Ahead{b.at + (next + at % 2 * 16) * b.apart + p + at / 2 * 32, b.apart, 0}
                            : Ahead{b.at + (p + at * 16) * b.apart + next, b.apart, 0};
      }
      kernel(rows, a.turned)(t);
    }
  }

  // Terms of a turned factor lie a row apart, and the rows of one whose lines are 2 KiB or more apart
  // meet in a few sets of the first-level cache: a tile of either is copied once for all panels.
  bool copies() const { return a.turned || a.apart % 512 == 0; }

  MR_AVX512 void keep(const float* from, int64_t terms, int64_t rows, float* to) const {
    if (!a.turned) {
      for (int64_t r = 0; r < rows; ++r) std::memcpy(to + r * kLine, from + r * a.apart, terms * sizeof(float));
      return;
    }
    const __mmask16 there = first(rows);
    for (int64_t p = 0; p < terms; ++p, from += a.apart, to += kRows) _mm512_mask_storeu_ps(to, 0xfff, _mm512_maskz_loadu_ps(there, from));
  }
};

}  // namespace

bool fits() {
  static const bool yes = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl");
  return yes;
}

void multiply(int64_t m, int64_t n, int64_t k, float alpha, Factor a, Factor b, Addend plus, float* c, int64_t apart) {
  Product{m, n, k, alpha, a, b, plus, c, apart}.part(0, m, 0, n);
}

#else

bool fits() { return false; }
void multiply(int64_t, int64_t, int64_t, float, Factor, Factor, Addend, float*, int64_t) {}

#endif

namespace {

bool ours(const Tensor& a, const Tensor& b) {
  return fits() && at::get_num_threads() == 1 && a.is_cpu() && b.is_cpu() && a.scalar_type() == at::kFloat && b.scalar_type() == at::kFloat && a.dim() == 2 &&
         b.dim() == 2 && a.size(1) == b.size(0) && a.numel() > 0 && b.numel() > 0;
}

// factor is t where it lies, if its rows or columns are whole, and keeps a copy in `kept` otherwise.
Factor factor(const Tensor& t, Tensor& kept) {
  if (t.stride(1) == 1 && t.stride(0) >= t.size(1)) return {t.data_ptr<float>(), t.stride(0), false};
  if (t.stride(0) == 1 && t.stride(1) >= t.size(0)) return {t.data_ptr<float>(), t.stride(1), true};
  kept = t.contiguous();
  return {kept.data_ptr<float>(), kept.size(1), false};
}

void write(const Tensor& a, const Tensor& b, Addend plus, const Tensor& c) {
  Tensor first, second;
  const Factor x = factor(a, first), y = factor(b, second);
  multiply(a.size(0), b.size(1), a.size(1), 1, x, y, plus, c.data_ptr<float>(), c.size(1));
}

}  // namespace

Tensor product(const Tensor& a, const Tensor& b) {
  if (!ours(a, b)) return at::mm(a, b);
  const Tensor c = at::empty({a.size(0), b.size(1)}, a.options());
  write(a, b, {}, c);
  return c;
}

Tensor product_plus_row(const Tensor& a, const Tensor& b, const Tensor& row) {
  if (!ours(a, b) || row.scalar_type() != at::kFloat || row.dim() != 1 || row.size(0) != b.size(1)) return at::addmm(row, a, b);
  const Tensor c = at::empty({a.size(0), b.size(1)}, a.options()), r = row.contiguous();
  write(a, b, {r.data_ptr<float>(), 0}, c);
  return c;
}

void add_product(Tensor& sum, const Tensor& a, const Tensor& b) {
  const bool whole = sum.is_contiguous() && sum.scalar_type() == at::kFloat && sum.dim() == 2 && sum.size(0) == a.size(0) && sum.size(1) == b.size(1);
  if (!ours(a, b) || !whole) {
    sum.addmm_(a, b);
    return;
  }
  write(a, b, {sum.data_ptr<float>(), sum.size(1)}, sum);
}

}  // namespace mr::gemm
