// gemm_tile.h: the kernel of gemm.cpp for AVX-512, which keeps a tile of up to 12 rows by 32 columns of sums
// in registers.
//
// The multiplications take only two of the instructions that the processor can start per cycle. So after
// every 16 terms a piece of other work is done in between. The tile's rows are copied close together, if
// they do not lie so, and what the next tile and the next panel read is prefetched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "gemm.h"

#if defined(__x86_64__) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC's own headers, its bug 105593
#include <immintrin.h>
#pragma GCC diagnostic pop
#define MR_GEMM 1
#define MR_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma")))

namespace mr::gemm {

constexpr int kRows = 12;               // of a tile
constexpr int kColumns = 32;            // of a tile and a panel
constexpr int kPiece = 16;              // terms between two pieces of other work
constexpr int64_t kTerms = 256;         // of a panel: 32 KiB
constexpr int64_t kLine = kTerms + 16;  // floats from a row to the next in the copy of a tile

// Columns is a mask of the tile's columns that are inside the matrix.
struct Columns {
  __mmask16 left, right;
};

MR_AVX512 inline __mmask16 first(int64_t n) {
  return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
}

inline Columns columns_of(int64_t n) { return {first(n), first(n - 16)}; }

// Ahead is what to prefetch: cache lines that begin `line` floats apart, moved on by `on` floats after each
// piece. Nothing is prefetched if at is null.
struct Ahead {
  const float* at = nullptr;
  int64_t line = 0, on = 0;
};

struct Tile {
  int64_t terms;
  const float* a;
  int64_t down;  // floats from a row of a to the next; from a term to the next if a is turned
  float* copy;   // where the copy of a is; null if a is read where it lies
  const float* panel;
  Ahead first, second;  // for each factor: 16 lines a piece of the first, 2 adjacent ones of the second
  float alpha;
  Addend plus;
  const float* row;  // added to every row; null for none
  float* c;
  int64_t apart;
  Columns columns;
};

// copy_piece copies kPiece terms of a tile's rows, from term p on. A turned factor's terms lie `down` floats
// apart and are written with the rows side by side.
template <int R, bool Turned>
MR_AVX512 __attribute__((always_inline)) inline void copy_piece(const Tile& t, int64_t p) {
  if (Turned) {
    const int64_t last = std::min<int64_t>(p + kPiece, t.terms);
    const __mmask16 there = first(R);
    const float* from = t.a + p * t.down;
    for (float *to = t.copy + p * kRows, *end = t.copy + last * kRows; to < end;
         to += kRows, from += t.down) {
      _mm512_mask_storeu_ps(to, 0xfff, _mm512_maskz_loadu_ps(there, from));
    }
    return;
  }
  const __mmask16 there = first(t.terms - p);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    _mm512_storeu_ps(t.copy + r * kLine + p, _mm512_maskz_loadu_ps(there, t.a + r * t.down + p));
}

// compute does a tile of R rows of a, which are `down` floats apart and whose terms are `along` floats apart.
template <int R, bool Copies, bool Turned>
MR_AVX512 __attribute__((always_inline)) inline void compute(const Tile& t, const float* a, int64_t down,
                                                             int64_t along) {
  __m512 sum[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  const float *b = t.panel, *first = t.first.at, *second = t.second.at;
  float* c = t.c;
  if (Copies) copy_piece<R, Turned>(t, 0);
  for (int64_t p = 0; p < t.terms; p += kPiece) {
    if (Copies && p + kPiece < t.terms) copy_piece<R, Turned>(t, p + kPiece);
    if (first != nullptr) {
      for (int i = 0; i < 16; ++i) __builtin_prefetch(first + i * t.first.line, 0, 2);
      first += t.first.on;
    }
    if (second != nullptr) {
      __builtin_prefetch(second, 0, 2);
      __builtin_prefetch(second + 16, 0, 2);
      second += t.second.on;
    }
    __builtin_prefetch(c, 1);
    __builtin_prefetch(c + 16, 1);
    c += t.apart;
    const float* const end = b + std::min<int64_t>(kPiece, t.terms - p) * kColumns;
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
  __m512 row_left = _mm512_setzero_ps(), row_right = row_left;
  if (t.row != nullptr) {
    row_left = _mm512_maskz_loadu_ps(t.columns.left, t.row);
    row_right = _mm512_maskz_loadu_ps(t.columns.right, t.row + 16);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    __m512 left = row_left, right = row_right;
    if (t.plus.at != nullptr) {
      left = _mm512_add_ps(left, _mm512_maskz_loadu_ps(t.columns.left, t.plus.at + r * t.plus.apart));
      right = _mm512_add_ps(right, _mm512_maskz_loadu_ps(t.columns.right, t.plus.at + r * t.plus.apart + 16));
    }
    _mm512_mask_storeu_ps(t.c + r * t.apart, t.columns.left, _mm512_fmadd_ps(alpha, sum[r][0], left));
    _mm512_mask_storeu_ps(t.c + r * t.apart + 16, t.columns.right, _mm512_fmadd_ps(alpha, sum[r][1], right));
  }
}

// The next three compute a tile that is read where it lies, that was copied before, or that is copied now.
template <int R>
MR_AVX512 void in_place(const Tile& t) {
  compute<R, false, false>(t, t.a, t.down, 1);
}

template <int R>
MR_AVX512 void copied(const Tile& t) {
  compute<R, false, false>(t, t.copy, kLine, 1);
}

template <int R>
MR_AVX512 void copying(const Tile& t) {
  compute<R, true, false>(t, t.copy, kLine, 1);
}

// The next two do the same for a turned factor, whose tiles are always copied.
template <int R>
MR_AVX512 void turned_copied(const Tile& t) {
  compute<R, false, true>(t, t.copy, 1, kRows);
}

template <int R>
MR_AVX512 void turned_copying(const Tile& t) {
  compute<R, true, true>(t, t.copy, 1, kRows);
}

using Compute = void (*)(const Tile&);

enum Way { kInPlace, kCopied, kCopying, kTurnedCopied, kTurnedCopying };

template <int... R>
inline Compute kernel_of(std::integer_sequence<int, R...>, int64_t rows, Way way) {
  static constexpr Compute all[][5] = {
      {in_place<R + 1>, copied<R + 1>, copying<R + 1>, turned_copied<R + 1>, turned_copying<R + 1>}...};
  return all[rows - 1][way];
}

// kernel is the function that computes a tile of so many rows, 1 to 12.
inline Compute kernel(int64_t rows, Way way) {
  return kernel_of(std::make_integer_sequence<int, kRows>(), rows, way);
}

// turn writes the transpose of 16 x 16 floats, whose rows begin `apart` floats apart, into a panel. Rows from
// `rows` on, and columns that are not in the mask, are zeros.
MR_AVX512 inline void turn(const float* from, int64_t apart, int64_t rows, __mmask16 columns, float* to) {
  __m512 x[16], y[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    x[i] = i < rows ? _mm512_maskz_loadu_ps(columns, from + i * apart) : _mm512_setzero_ps();
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

}  // namespace mr::gemm

#endif
