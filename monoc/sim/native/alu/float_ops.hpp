// Scalar float operations shared by the f16, f32 and f64 tables.
#pragma once

#include "formats.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

inline f32 fused(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
inline f64 fused(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }

inline bool is_nan(f32 x) { return x != x; }
inline bool is_nan(f64 x) { return x != x; }
inline bool signalling(f32 x) { return (bits<u32>(x) & 0x7fffffffu) - 0x7f800001u < 0x3fffffu; }
inline bool signalling(f64 x) { return (bits<u64>(x) & 0x7fffffffffffffffull) - 0x7ff0000000000001ull < 0x7ffffffffffffull; }

template <class T> struct WordOf { using U = u32; };
template <> struct WordOf<f64> { using U = u64; };

// minNum / maxNum with -0 < +0: a NaN loses to a number.
template <class T>
T max_num(T a, T b) {
  using U = typename WordOf<T>::U;
  const T both = bits<T>(static_cast<U>(bits<U>(a) & bits<U>(b)));
  const T equal = b > a ? b : both;
  const T ordered = a > b ? a : equal;
  const T number = is_nan(b) ? a : ordered;
  return is_nan(a) ? canon(b) : number;
}
template <class T>
T min_num(T a, T b) {
  using U = typename WordOf<T>::U;
  const T both = bits<T>(static_cast<U>(bits<U>(a) | bits<U>(b)));
  const T equal = b < a ? b : both;
  const T ordered = a < b ? a : equal;
  const T number = is_nan(b) ? a : ordered;
  return is_nan(a) ? canon(b) : number;
}
// With MODE.IEEE a signalling NaN wins, quieted.
template <class T>
T max_ieee(T a, T b) {
  return signalling(a) | signalling(b) ? T(__builtin_nan("")) : max_num(a, b);
}
template <class T>
T min_ieee(T a, T b) {
  return signalling(a) | signalling(b) ? T(__builtin_nan("")) : min_num(a, b);
}

// IEEE 754-2019 minimum / maximum: a NaN wins.
inline f32 maximum(f32 a, f32 b) {
  const f32 both = bits<f32>(bits<u32>(a) & bits<u32>(b));
  const f32 equal = b > a ? b : both;
  const f32 ordered = a > b ? a : equal;
  const f32 number = is_nan(a) ? bits<f32>(kNan32) : ordered;
  return is_nan(b) ? bits<f32>(kNan32) : number;
}
inline f32 minimum(f32 a, f32 b) {
  const f32 both = bits<f32>(bits<u32>(a) | bits<u32>(b));
  const f32 equal = b < a ? b : both;
  const f32 ordered = a < b ? a : equal;
  const f32 number = is_nan(a) ? bits<f32>(kNan32) : ordered;
  return is_nan(b) ? bits<f32>(kNan32) : number;
}

template <class T>
T med3(T a, T b, T c) {
  const T low = min_num(a, b), high = max_num(a, b);
  const T middle = max_num(low, min_num(high, c));
  const T smallest = min_num(low, c);
  const bool nan = is_nan(a) | is_nan(b) | is_nan(c);
  return nan ? smallest : middle;
}

// x - floor(x), below 1.
inline f32 fract(f32 x) {
  const f32 r = x - __builtin_floorf(x);
  return canon(r > bits<f32>(0x3f7fffffu) ? bits<f32>(0x3f7fffffu) : r);
}
inline f64 fract(f64 x) {
  const f64 r = x - __builtin_floor(x);
  const f64 below_one = bits<f64>(0x3fefffffffffffffull);
  return canon(r > below_one ? below_one : r);
}

// Significand in [0.5, 1) and exponent; zero, infinity and NaN pass, with exponent 0.
inline f32 frexp_mant(f32 x) {
  const u32 m = bits<u32>(x) & 0x7fffffffu;
  const f32 scaled = m < 0x00800000u ? x * pow2(24) : x;
  const f32 mantissa = bits<f32>((bits<u32>(scaled) & 0x807fffffu) | 0x3f000000u);
  return m == 0 || m >= 0x7f800000u ? canon(x) : mantissa;
}
inline i32 frexp_exp(f32 x) {
  const u32 m = bits<u32>(x) & 0x7fffffffu;
  const bool denormal = m < 0x00800000u;
  const u32 scaled = denormal ? bits<u32>(bits<f32>(m) * pow2(24)) : m;
  const i32 exponent = static_cast<i32>(scaled >> 23) - 126 - (denormal ? 24 : 0);
  return m == 0 || m >= 0x7f800000u ? 0 : exponent;
}
inline f64 frexp_mant(f64 x) {
  const u64 m = bits<u64>(x) & 0x7fffffffffffffffull;
  const f64 scaled = m < 0x0010000000000000ull ? x * 0x1p54 : x;
  const f64 mantissa = bits<f64>((bits<u64>(scaled) & 0x800fffffffffffffull) | 0x3fe0000000000000ull);
  return m == 0 || m >= 0x7ff0000000000000ull ? canon(x) : mantissa;
}
inline i32 frexp_exp(f64 x) {
  const u64 m = bits<u64>(x) & 0x7fffffffffffffffull;
  const bool denormal = m < 0x0010000000000000ull;
  const u64 scaled = denormal ? bits<u64>(bits<f64>(m) * 0x1p54) : m;
  const i32 exponent = static_cast<i32>(scaled >> 52) - 1022 - (denormal ? 54 : 0);
  return m == 0 || m >= 0x7ff0000000000000ull ? 0 : exponent;
}

inline f64 pow2_f64(i32 n) { return bits<f64>(static_cast<u64>(i64{n} + 1023) << 52); }
inline i32 limit(i32 x, i32 bound) { return x < -bound ? -bound : x > bound ? bound : x; }

// x * 2^n with one rounding.
inline f32 ldexp_f32(f32 x, i32 n) { return canon(static_cast<f32>(f64{x} * pow2_f64(limit(n, 400)))); }
inline f64 ldexp_f64(f64 x, i32 n) { return canon(__builtin_ldexp(x, limit(n, 5000))); }

}  // namespace
}  // namespace monoc::sim::alu::MONOC_ALU_NS
