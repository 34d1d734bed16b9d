// mix.h: random words calculated from counters, the same as engine.Mask's.
//
// mix is the finalizer of SplitMix64: Steele et al., Fast Splittable Pseudorandom Number Generators, OOPSLA
// 2014.
#pragma once

#include <cstdint>

namespace mr {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15, kMix1 = 0xbf58476d1ce4e5b9, kMix2 = 0x94d049bb133111eb;

inline uint64_t mix(uint64_t z) {
  z = (z ^ z >> 30) * kMix1;
  z = (z ^ z >> 27) * kMix2;
  return z ^ z >> 31;
}

}  // namespace mr
