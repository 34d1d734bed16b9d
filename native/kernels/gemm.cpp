// gemm.cpp: matrix products for the sizes of a pipeline's micro-batches.
//
// A library's product first copies both factors into the order in which its kernel reads them
// (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008). That pays off
// over thousands of rows, but a micro-batch has only a few hundred. Here the first factor is
// read where it lies, each float broadcast to all lanes of a vector. Of the second factor one panel
// of 32 columns at a time is copied, and stays in the first-level cache for all rows. While a tile is
// computed, the cache lines of the next tile, of the next panel and of the result are prefetched: a
// micro-batch's factors were last used a whole micro-batch ago and have left the near caches.
//
// Each sum is taken in ascending order of its terms, 256 at a time, whichever tile it lies
// in. So the bits of a row do not depend on other rows, on the number of rows or on the number of threads.
//
// This is for processors with AVX-512; on others libtorch's own products are used.

#include "gemm.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include "gemm_tile.h"
#include "offered.h"
#include "room.h"

namespace mr {
namespace gemm {

#ifdef MR_GEMM

namespace {

constexpr int64_t kTall =
    384;  // rows multiplied by one panel: the first factor's then fit in the second-level cache

constexpr int64_t kTileFloats = kRows * kLine;  // in the copy of a tile

// panel_of_thread is memory for the calling thread's panel and, behind it, the copies of its tiles.
float* panel_of_thread() {
  static thread_local Room room;
  return room.floats(kTerms * kColumns + (kTall + kRows - 1) / kRows * kTileFloats);
}

// Pass is the work with one panel: the range of rows, terms and columns that is computed with it.
struct Pass {
  int64_t top, bottom;  // rows
  int64_t p, terms;
  int64_t j, wide;  // columns
  bool fresh;       // whether this is the first panel for these rows and terms
};

int64_t round_up(int64_t n, int64_t of) { return (n + of - 1) / of * of; }

// fill copies a panel's terms and columns.
MR_AVX512 void fill(const Factor& b, const Pass& s, float* panel) {
  if (b.turned) {
    for (int64_t j = 0; j < kColumns; j += 16) {
      for (int64_t p = 0; p < s.terms; p += 16) {
        turn(b.at + (s.j + j) * b.apart + s.p + p, b.apart, s.wide - j, first(s.terms - p),
             panel + p * kColumns + j);
      }
    }
    return;
  }
  const Columns columns = columns_of(s.wide);
  const float* from = b.at + s.p * b.apart + s.j;
  for (int64_t p = 0; p < s.terms; ++p, from += b.apart, panel += kColumns) {
    _mm512_store_ps(panel, _mm512_maskz_loadu_ps(columns.left, from));
    _mm512_store_ps(panel + 16, _mm512_maskz_loadu_ps(columns.right, from + 16));
  }
}

// Product is one call of multiply or multiply_packed.
struct Product {
  int64_t n, first_term, last_term;
  float alpha;
  Factor a, b;
  const Panels* packed;  // instead of b
  Addend plus;
  float* c;
  int64_t apart;
  const Finish* finish;

  // part computes the rows from `row` up to last_row and the columns from `column` up to last_column.
  void part(int64_t row, int64_t last_row, int64_t column, int64_t last_column) const {
    float *const own = panel_of_thread(), *const copies_at = own + kTerms * kColumns;
    Pass now = pass_at(row, last_row, first_term, column, last_column, column), next;
    for (bool more = true; more; now = next) {
      next = now;
      more = advance(next, row, last_row, column, last_column);
      if (packed == nullptr) fill(b, now, own);
      tiles(now, packed == nullptr ? own : panel_of(now), more ? &next : nullptr, copies_at);
      if (finish != nullptr && now.p + now.terms == last_term)
        (*finish)(now.top, now.bottom, now.j, now.j + now.wide);
    }
  }

  Pass pass_at(int64_t top, int64_t last_row, int64_t p, int64_t j, int64_t last_column,
               int64_t column) const {
    const int64_t end = packed == nullptr ? p + kTerms : (p / kTerms + 1) * kTerms;
    return {top,        std::min(top + kTall, last_row),
            p,          std::min(end, last_term) - p,
            j,          std::min<int64_t>(kColumns, last_column - j),
            j == column};
  }

  // advance moves s to the next panel: the next columns, or else the next terms, or else the next rows. It
  // returns false after the last one.
  bool advance(Pass& s, int64_t row, int64_t last_row, int64_t column, int64_t last_column) const {
    int64_t top = s.top, p = s.p, j = s.j + kColumns;
    if (j >= last_column) {
      j = column;
      p += s.terms;
    }
    if (p >= last_term) {
      p = first_term;
      top += kTall;
    }
    if (top >= last_row) return false;
    s = pass_at(top, last_row, p, j, last_column, column);
    return true;
  }

  const float* panel_of(const Pass& s) const {
    const int64_t block = s.p / kTerms * kTerms, terms = std::min(kTerms, packed->terms - block);
    return packed->at + block * round_up(packed->columns, kColumns) + s.j * round_up(terms, 16) +
           (s.p - block) * kColumns;
  }

  // tiles computes all tiles of a pass.
  void tiles(const Pass& s, const float* panel, const Pass* next, float* copies_at) const {
    const Columns columns = columns_of(s.wide);
    int64_t at = 0;
    for (int64_t i = s.top; i < s.bottom; i += kRows, ++at) {
      const int64_t rows = std::min<int64_t>(kRows, s.bottom - i), term = s.p - first_term;
      Tile t{};
      t.terms = s.terms;
      t.a = a.turned ? a.at + term * a.apart + i : a.at + i * a.apart + term;
      t.down = a.apart;
      t.panel = panel;
      t.alpha = alpha;
      t.c = c + i * apart + s.j;
      t.apart = apart;
      t.columns = columns;
      t.plus = {t.c, apart};
      if (s.p == first_term) {
        t.plus = plus.at == nullptr ? Addend{} : Addend{plus.at + i * plus.apart + s.j, plus.apart};
        if (plus.row != nullptr) t.row = plus.row + s.j;
      }
      if (copies()) t.copy = copies_at + at * kTileFloats;
      if (s.fresh && i + kRows < s.bottom) {
        t.first = a.turned ? Ahead{t.a + kRows + rows - 1, a.apart, 16 * a.apart}
                           : Ahead{t.a + kRows * a.apart, a.apart, 16};
      }
      if (next != nullptr && at < 16) t.second = ahead_of(*next, at);
      kernel(rows, way(s.fresh))(t);
    }
  }

  // ahead_of is the sixteenth of the next panel that is prefetched while tile number `at` is computed.
  Ahead ahead_of(const Pass& next, int64_t at) const {
    if (packed != nullptr) return {panel_of(next) + at * 16 * kColumns, 0, kColumns};
    if (b.turned) return {b.at + (next.j + at % 2 * 16) * b.apart + next.p + at / 2 * 32, 0, b.apart};
    return {b.at + (next.p + at * 16) * b.apart + next.j, 0, b.apart};
  }

  // copies says whether a tile of the first factor is copied, once for all panels. Terms of a turned factor
  // lie a whole row apart. Rows that are a multiple of 2 KiB apart share a few sets of the first-level cache.
  bool copies() const { return a.turned || a.apart % 512 == 0; }

  Way way(bool fresh) const {
    if (a.turned) return fresh ? kTurnedCopying : kTurnedCopied;
    if (!copies()) return kInPlace;
    return fresh ? kCopying : kCopied;
  }
};

// kGrain is the least number of multiplications that is worth another thread.
constexpr int64_t kGrain = int64_t{1} << 20;

}  // namespace

bool fits() {
  static const bool yes = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return yes;
}

void multiply(int64_t m, int64_t n, int64_t k, float alpha, Factor a, Factor b, Addend plus, float* c,
              int64_t apart, const Finish& finish) {
  const Product whole_product{n, 0, k, alpha, a, b, nullptr, plus, c, apart, finish ? &finish : nullptr};
  // The longer side is divided among threads, in whole tiles.
  const bool by_rows = m > n;
  const int64_t side = by_rows ? kRows : kColumns, units = ((by_rows ? m : n) + side - 1) / side,
                each = side * k * (by_rows ? n : m);
  at::parallel_for(0, units, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, each)),
                   [&](int64_t from, int64_t to) {
                     if (by_rows) {
                       whole_product.part(from * side, std::min(to * side, m), 0, n);
                     } else {
                       whole_product.part(0, m, from * side, std::min(to * side, n));
                     }
                   });
}

int64_t panels_size(int64_t terms, int64_t columns) {
  return round_up(terms, 16) * round_up(columns, kColumns);
}

Panels pack(Factor b, int64_t terms, int64_t columns, float* to) {
  const Panels made{to, terms, columns};
  for (int64_t p = 0; p < terms; p += kTerms) {
    for (int64_t j = 0; j < columns; j += kColumns) {
      const Pass s{0, 0, p, std::min(kTerms, terms - p), j, std::min<int64_t>(kColumns, columns - j), true};
      fill(b, s, to);
      to += round_up(s.terms, 16) * kColumns;
    }
  }
  return made;
}

void multiply_packed(int64_t m, int64_t n, int64_t term, int64_t last_term, float alpha, Factor a,
                     const Panels& b, Addend plus, float* c, int64_t apart) {
  Product{n, term, last_term, alpha, a, {}, &b, plus, c, apart, nullptr}.part(0, m, 0, n);
}

#else

bool fits() { return false; }
void multiply(int64_t, int64_t, int64_t, float, Factor, Factor, Addend, float*, int64_t, const Finish&) {}
int64_t panels_size(int64_t, int64_t) { return 0; }
Panels pack(Factor, int64_t, int64_t, float*) { return {}; }
void multiply_packed(int64_t, int64_t, int64_t, int64_t, float, Factor, const Panels&, Addend, float*,
                     int64_t) {}

#endif

namespace {

bool ours(const Tensor& a, const Tensor& b) {
  return fits() && a.is_cpu() && b.is_cpu() && a.scalar_type() == at::kFloat &&
         b.scalar_type() == at::kFloat && a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0) &&
         a.numel() > 0 && b.numel() > 0;
}

bool is_row(const Tensor& row, const Tensor& b) {
  return row.scalar_type() == at::kFloat && row.dim() == 1 && row.size(0) == b.size(1);
}

// factor is t where it lies, if the elements of each row or of each column are adjacent. Otherwise it copies
// t to `kept` and is that copy.
Factor factor(const Tensor& t, Tensor& kept) {
  if (t.stride(1) == 1 && t.stride(0) >= t.size(1)) return {t.data_ptr<float>(), t.stride(0), false};
  if (t.stride(0) == 1 && t.stride(1) >= t.size(0)) return {t.data_ptr<float>(), t.stride(1), true};
  kept = t.contiguous();
  return {kept.data_ptr<float>(), kept.size(1), false};
}

void write(const Tensor& a, const Tensor& b, Addend plus, const Tensor& c, const Finish& finish = {}) {
  Tensor first, second;
  const Factor x = factor(a, first), y = factor(b, second);
  multiply(a.size(0), b.size(1), a.size(1), 1, x, y, plus, c.data_ptr<float>(), c.size(1), finish);
}

bool whole(const Tensor& c, const Tensor& a, const Tensor& b) {
  return c.is_contiguous() && c.scalar_type() == at::kFloat && c.dim() == 2 && c.size(0) == a.size(0) &&
         c.size(1) == b.size(1);
}

}  // namespace

void write_product(Tensor& c, const Tensor& a, const Tensor& b, const Finish& finish) {
  if (ours(a, b) && whole(c, a, b)) return write(a, b, {}, c, finish);
  at::mm_out(c, a, b);
  finish(0, c.size(0), 0, c.size(1));
}

}  // namespace gemm

Tensor whole_product(const Tensor& a, const Tensor& b, const Tensor& row, const Tensor& rows) {
  if (!gemm::ours(a, b) || (row.defined() && !gemm::is_row(row, b)) ||
      (rows.defined() && !gemm::whole(rows, a, b)))
    return {};
  const Tensor c = at::empty({a.size(0), b.size(1)}, a.options()), r = row.defined() ? row.contiguous() : row;
  gemm::Addend plus;
  if (row.defined()) plus.row = r.data_ptr<float>();
  if (rows.defined()) {
    plus.at = rows.data_ptr<float>();
    plus.apart = rows.size(1);
  }
  gemm::write(a, b, plus, c);
  return c;
}

bool sum_product(const Tensor& sum, const Tensor& a, const Tensor& b) {
  if (!gemm::ours(a, b) || !gemm::whole(sum, a, b)) return false;
  gemm::write(a, b, {sum.data_ptr<float>(), sum.size(1)}, sum);
  return true;
}

}  // namespace mr
