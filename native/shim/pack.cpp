// pack.cpp: rows of numbers in 16 or 8 bits, as Go's package internal/packing defines them.
//
//   pack    returns a tensor of floats as bytes, with the bytes of an element as one more dimension, and the
//           scales of its rows. It notes in seen the largest error, the largest error divided by its row's
//           largest magnitude, and how many numbers are too large for the format.
//   unpack  returns the floats that the bytes stand for

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "internal.h"

namespace {

using at::Tensor;

enum class Format { f16, bf16, i8 };

constexpr int64_t kScaleBytes = 4;
constexpr float kLargestF16 = 65504;
constexpr uint32_t kLargestBF16 = 0x7f7f0000, kInfinity = 0x7f800000;

Format format_of(c10::string_view name) {
  if (name == "f16") return Format::f16;
  if (name == "bf16") return Format::bf16;
  if (name == "i8") return Format::i8;
  throw std::invalid_argument("a packed format is f16, bf16 or i8");
}

int64_t each_of(Format f) { return f == Format::i8 ? 1 : 2; }
int64_t scale_of(Format f) { return f == Format::i8 ? kScaleBytes : 0; }

uint32_t bits_of(float x) {
  uint32_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
}

float number_of(uint32_t u) {
  float x;
  std::memcpy(&x, &u, sizeof x);
  return x;
}

// Packed is a number's 16 bits, the value that they stand for, and whether the number was too large for the
// format.
struct Packed {
  uint16_t bits;
  float stands;
  bool beyond;
};

// To round a to 11 bits, to even, this adds and subtracts a power of two whose last bit has the same place
// value as the last bit of the result.
inline Packed to_f16(float x) {
  const uint32_t u = bits_of(x), sign = u >> 31, magnitude = u & 0x7fffffff;
  if (magnitude >= kInfinity) {
    return {static_cast<uint16_t>(magnitude > kInfinity ? 0x7e00 : 0x7c00 | sign << 15), x, false};
  }
  float a = number_of(magnitude);
  if (a >= 65520) return {static_cast<uint16_t>(0x7bff | sign << 15), kLargestF16, true};
  const uint32_t exponent = std::max<uint32_t>(magnitude >> 23, 113);
  const float place = number_of((exponent + 13) << 23);
  a = (a + place) - place;
  const uint32_t half = a < 0x1p-14F ? static_cast<uint32_t>(a * 0x1p24F) : (bits_of(a) >> 13) - (112 << 10);
  return {static_cast<uint16_t>(half | sign << 15), sign != 0 ? -a : a, false};
}

inline Packed to_bf16(float x) {
  const uint32_t u = bits_of(x), sign = u & 0x80000000, magnitude = u & 0x7fffffff;
  if (magnitude >= kInfinity) {
    return {static_cast<uint16_t>(magnitude > kInfinity ? 0x7fc0 : u >> 16), x, false};
  }
  uint32_t rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) & 0xffff0000;
  const bool beyond = rounded >= kInfinity;
  if (beyond) rounded = kLargestBF16;
  return {static_cast<uint16_t>((rounded | sign) >> 16), number_of(rounded | sign), beyond};
}

float from_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h >> 15) << 31, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31) return number_of(sign | kInfinity | fraction << 13);
  if (exponent == 0) return number_of(sign | bits_of(static_cast<float>(fraction) * 0x1p-24F));
  return number_of(sign | (exponent + 112) << 23 | fraction << 13);
}

// Row is one row's largest magnitude, its largest rounding error, and how many numbers were too large for the
// format.
struct Row {
  float largest = 0, worst = 0;
  double beyond = 0;
};

template <Packed to(float)>
void pack_row16(const float* x, uint8_t* out, int64_t n, Row& row) {
  for (int64_t i = 0; i < n; ++i) {
    const Packed p = to(x[i]);
    std::memcpy(out + 2 * i, &p.bits, sizeof p.bits);
    const float a = std::fabs(x[i]), off = std::fabs(x[i] - p.stands);
    row.largest = a <= std::numeric_limits<float>::max() ? std::max(row.largest, a) : row.largest;
    row.beyond += p.beyond ? 1 : 0;
    row.worst = p.beyond || !(off <= row.largest) ? row.worst : std::max(row.worst, off);
  }
}

void pack_row8(const float* x, uint8_t* out, uint8_t* scale_out, int64_t n, Row& row) {
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    const float a = std::fabs(x[i]);
    finite = finite && a <= std::numeric_limits<float>::max();
    row.largest = std::max(row.largest, a);
  }
  const float scale = finite ? row.largest / 127 : number_of(0x7fc00000);
  std::memcpy(scale_out, &scale, sizeof scale);
  if (!(scale > 0)) {
    std::memset(out, 0, static_cast<size_t>(n));
    row.worst = finite ? row.largest : 0;
    return;
  }
  const double inverse = 1 / static_cast<double>(scale), place = 0x1.8p52;
  for (int64_t i = 0; i < n; ++i) {
    const double whole = (static_cast<double>(x[i]) * inverse + place) - place;
    const double q = std::max(-127.0, std::min(127.0, whole));
    out[i] = static_cast<uint8_t>(static_cast<int8_t>(q));
    row.worst = std::max(row.worst, static_cast<float>(std::fabs(static_cast<double>(x[i]) - q * scale)));
  }
}

int64_t rows_of(at::IntArrayRef shape) { return shape.empty() ? 1 : shape[0]; }

int64_t elements_of(at::IntArrayRef shape) {
  int64_t n = 1;
  for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
  return n;
}

std::tuple<Tensor, Tensor> pack(const Tensor& given, c10::string_view name, Tensor& seen) {
  const c10::AutoGradMode off(false);
  const Format f = format_of(name);
  const Tensor x = given.detach().contiguous();
  if (!x.is_cpu() || x.scalar_type() != at::kFloat || seen.scalar_type() != at::kDouble ||
      seen.numel() != 3 || !seen.is_cpu()) {
    throw std::invalid_argument(
        "pack takes a tensor of 32-bit floats in host memory, and 3 numbers of 64 bits");
  }
  const int64_t rows = rows_of(x.sizes()), n = elements_of(x.sizes()), each = each_of(f), scale = scale_of(f);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.push_back(each);
  Tensor out = at::empty(shape, x.options().dtype(at::kByte));
  Tensor scales = at::empty({rows, scale}, x.options().dtype(at::kByte));
  auto* noted = seen.data_ptr<double>();
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = x.data_ptr<float>() + r * n;
    uint8_t* to = out.data_ptr<uint8_t>() + r * n * each;
    Row row;
    switch (f) {
      case Format::f16:
        pack_row16<to_f16>(from, to, n, row);
        break;
      case Format::bf16:
        pack_row16<to_bf16>(from, to, n, row);
        break;
      case Format::i8:
        pack_row8(from, to, scales.data_ptr<uint8_t>() + r * scale, n, row);
        break;
    }
    if (row.worst > 0) {
      noted[0] = std::max(noted[0], static_cast<double>(row.worst));
      noted[1] = std::max(noted[1], static_cast<double>(row.worst) / static_cast<double>(row.largest));
    }
    noted[2] += row.beyond;
  }
  return {out, scales};
}

Tensor unpack(const Tensor& packed, const Tensor& scales, c10::string_view name, at::ScalarType type) {
  const c10::AutoGradMode off(false);
  const Format f = format_of(name);
  const int64_t each = each_of(f), scale_bytes = scale_of(f);
  if (!packed.is_cpu() || !scales.is_cpu() || packed.scalar_type() != at::kByte ||
      scales.scalar_type() != at::kByte || !packed.is_contiguous() || !scales.is_contiguous() ||
      packed.dim() == 0 || packed.sizes().back() != each || type != at::kFloat) {
    throw std::invalid_argument(
        "unpack takes bytes in host memory, as many behind the shape as an element has, and "
        "makes 32-bit floats");
  }
  const at::IntArrayRef shape = packed.sizes().slice(0, packed.dim() - 1);
  const int64_t rows = rows_of(shape), n = elements_of(shape);
  if (scales.numel() != rows * scale_bytes) throw std::invalid_argument("unpack takes a scale for each row");
  Tensor out = at::empty(shape, packed.options().dtype(type));
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* from = packed.data_ptr<uint8_t>() + r * n * each;
    float* to = out.data_ptr<float>() + r * n;
    float scale = 1;
    uint16_t bits;
    switch (f) {
      case Format::f16:
        for (int64_t i = 0; i < n; ++i) {
          std::memcpy(&bits, from + 2 * i, sizeof bits);
          to[i] = from_f16(bits);
        }
        break;
      case Format::bf16:
        for (int64_t i = 0; i < n; ++i) {
          std::memcpy(&bits, from + 2 * i, sizeof bits);
          to[i] = number_of(static_cast<uint32_t>(bits) << 16);
        }
        break;
      case Format::i8:
        std::memcpy(&scale, scales.data_ptr<uint8_t>() + r * scale_bytes, sizeof scale);
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(static_cast<int8_t>(from[i])) * scale;
        break;
    }
  }
  return out;
}

TORCH_LIBRARY_FRAGMENT(millrace, m) {
  m.def("pack(Tensor x, str format, Tensor(a!) seen) -> (Tensor, Tensor)", pack);
  m.def("unpack(Tensor packed, Tensor scales, str format, ScalarType dtype) -> Tensor", unpack);
}

}  // namespace
