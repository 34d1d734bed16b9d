// simd.h: loops over floats, compiled for several instruction sets; the best one is chosen at
// run time.
//
// A loop is written once, as a lambda over plain floats with `#pragma omp simd`, and given
// to widest, which inlines it into three functions: for AVX-512, for AVX2 and for any
// processor that the compiler builds for. The order in which a reduction adds depends on the width of the
// vectors. So results have the same bits on one machine with one build, whichever thread or micro-batch runs
// the loop, but not across machines.

#pragma once

#include <cstdint>
#include <cstring>

namespace mr::simd {

#if defined(__x86_64__) && defined(__GNUC__)

template <class F>
__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma,prefer-vector-width=512"), flatten)) void
avx512(const F& f) {
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
// It splits x = n ln 2 + r with |r| <= ln 2 / 2 (subtracting ln 2 in two parts, after Cody and Waite). e^r is
// its Taylor series up to r^7, and 2^n is made by writing n into the exponent bits of a float.
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

// Normal is the standard normal distribution at x: the probability of a value below x, and the density at x.
struct Normal {
  float below, density;
};

// normal calculates Normal at x. The probability beyond |x| is 0.5 e^(-x^2 / 2) t P(t) with
// t = 1 / (1 + |x| / sqrt(8)), the form of Hastings (Approximations for Digital Computers, 1955, sheet 61).
// So one exp serves both results. P is a polynomial of the eighth degree, fitted for the least relative
// error, 4.2e-8 up to |x| = 13.
inline Normal normal(float x) {
  const float size = x < 0 ? -x : x, t = 1.0f / (1.0f + size * 0.353553391f);
  const float bell = exp(-0.5f * x * x);
  float p = -0.0588910599f;
  p = p * t + 0.283703308f;
  p = p * t - 0.485386375f;
  p = p * t + 0.275981061f;
  p = p * t - 0.0251795706f;
  p = p * t + 0.202070578f;
  p = p * t + 0.243260834f;
  p = p * t + 0.282353506f;
  p = p * t + 0.282087675f;
  const float beyond = 0.5f * t * p * bell;
  return {x < 0 ? beyond : 1.0f - beyond, 0.398942280f * bell};
}

}  // namespace mr::simd
