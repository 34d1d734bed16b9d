// simd.h: loops over floats, compiled for several instruction sets, the best taken at
// run time.
//
// A loop is written once, as a lambda over plain floats with `#pragma omp simd`, and given
// to widest, which inlines it into three functions: for AVX-512, for AVX2 and for any
// processor that the compiler builds for. A reduction's order of addition is that of the
// vectors taken, so bits hold within one machine and build, and never depend on
// which thread or micro-batch runs the loop.

#pragma once

#include <cstdint>
#include <cstring>

namespace mr::simd {

#if defined(__x86_64__) && defined(__GNUC__)

template <class F>
__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma,prefer-vector-width=512"), flatten)) void avx512(const F& f) {
  f();
}

template <class F>
__attribute__((target("avx2,fma"), flatten)) void avx2(const F& f) {
  f();
}

template <class F>
inline void widest(const F& f) {
  static const bool has512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  static const bool has256 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has512) return avx512(f);
  if (has256) return avx2(f);
  f();
}

#else

template <class F>
inline void widest(const F& f) {
  f();
}

#endif

// exp is e^x for x up to 88, to 2 units in the last place; below -87 it is e^-87, about 1e-38.
// x = n ln 2 + r with |r| <= ln 2 / 2 (ln 2 in two parts, after Cody and Waite), e^r by its
// Taylor series to the seventh power, 2^n by putting n where a float has its exponent.
inline float exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  const float shifted = x * 1.44269504f + magic;
  const float n = shifted - magic;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits - 0x4b400000u + 127u) << 23;  // 0x4b400000 is magic
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return p * power;
}

// erf is the error function to 2 units in the last place: a polynomial of the least error
// on either side of 0.9277, the outer one in the exponent of 1 - e^q (the form and the numbers
// are N. Juffa's). From 4 on it is 1.
inline float erf(float x) {
  float t = x < 0 ? -x : x;
  t = t > 4.0f ? 4.0f : t;
  const float s = t * t;
  float far = -1.72853470e-5f * t + 3.83197126e-4f;
  far = far * s + (-3.88396438e-3f * t + 2.42546219e-2f);
  far = far * t - 1.06777877e-1f;
  far = far * t - 6.34846687e-1f;
  far = far * t - 1.28717512e-1f;
  far = far * t - t;
  far = 1.0f - exp(far);
  float near = -5.96761703e-4f;
  near = near * s + 4.99119423e-3f;
  near = near * s - 2.67681349e-2f;
  near = near * s + 1.12819925e-1f;
  near = near * s - 3.76125336e-1f;
  near = near * s + 1.28379166e-1f;
  near = near * x + x;
  return t > 0.927734375f ? (x < 0 ? -far : far) : near;
}

}  // namespace mr::simd
