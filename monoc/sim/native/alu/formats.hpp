// Small float formats as branch-free scalar code that vectorises: f16, bf16, e4m3 (fp8), e5m2 (bf8), e2m3 (fp6), e3m2 (bf6),
// e2m1 (fp4). Layouts: IEEE 754, OCP 8-bit floating point (gfx950) and OCP microscaling formats 1.0.
#pragma once

#include "lanes.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

[[gnu::always_inline]] inline f32 abs_bits(u32 b) { return bits<f32>(b & 0x7fffffffu); }

// 2^n for -126 <= n <= 127.
[[gnu::always_inline]] constexpr f32 pow2(int n) { return bits<f32>(static_cast<u32>(n + 127) << 23); }

[[gnu::always_inline]] inline f32 half_to_f32(u32 h) {
  const u32 sign = (h & 0x8000u) << 16;
  const u32 magnitude = (h & 0x7fffu) << 13;
  const u32 exponent = magnitude & 0x0f800000u;
  const u32 normal = magnitude + (112u << 23);
  const u32 subnormal = bits<u32>(bits<f32>(magnitude + (113u << 23)) - bits<f32>(113u << 23));
  const u32 special = magnitude + (224u << 23);
  const u32 m = exponent == 0 ? subnormal : exponent == 0x0f800000u ? special : normal;
  return bits<f32>(m | sign);
}

// Round to nearest even; overflow is infinity, or the largest number with `saturate` (infinity stays).
[[gnu::always_inline]] inline u32 f32_to_half(f32 value, bool saturate = false) {
  const u32 b = bits<u32>(value);
  const u32 m = b & 0x7fffffffu;
  const u32 sign = b >> 16 & 0x8000u;
  const u32 normal = (m - (112u << 23) + 0xfffu + (m >> 13 & 1u)) >> 13;
  const u32 subnormal = bits<u32>(bits<f32>(m) + 0.5f) - bits<u32>(0.5f);
  const u32 overflow = saturate && m < 0x7f800000u ? 0x7bffu : 0x7c00u;
  const u32 finite = m < 0x38800000u ? subnormal : normal >= 0x7c00u || m >= 0x47800000u ? overflow : normal;
  return sign | (m > 0x7f800000u ? 0x7e00u | (m >> 13 & 0x3ffu) : finite);
}

[[gnu::always_inline]] inline u32 f32_to_half_rtz(f32 value) {
  const u32 b = bits<u32>(value);
  const u32 m = b & 0x7fffffffu;
  const u32 sign = b >> 16 & 0x8000u;
  const u32 normal = (m - (112u << 23)) >> 13;
  const u32 shift = 126u - (m >> 23);
  const u32 subnormal = shift < 32 ? ((m & 0x7fffffu) | 0x800000u) >> (shift & 31) : 0u;
  const u32 finite = m < 0x38800000u ? subnormal : m >= 0x47800000u ? 0x7bffu : normal;
  return sign | (m > 0x7f800000u ? 0x7e00u | (m >> 13 & 0x3ffu) : m == 0x7f800000u ? 0x7c00u : finite);
}

// f64 -> f16 in one rounding: the f64 is first rounded to odd at f32 precision, which a second rounding cannot undo.
[[gnu::always_inline]] inline f32 f64_to_f32_odd(f64 value) {
  const f32 nearest = static_cast<f32>(value);
  const f64 back = nearest;
  const u32 b = bits<u32>(nearest);
  const bool exact = back == value || value != value;
  // One step toward zero if rounding went away from it, then the sticky bit.
  const bool away = __builtin_fabs(back) > __builtin_fabs(value);
  return bits<f32>(exact ? b : (away ? b - 1u : b) | 1u);
}

[[gnu::always_inline]] inline f16 to_half(f32 value) { return {static_cast<u16>(f32_to_half(value))}; }
[[gnu::always_inline]] inline f16 to_half(f64 value) { return to_half(f64_to_f32_odd(value)); }
[[gnu::always_inline]] inline f32 value_of(f16 h) { return half_to_f32(h.v); }
// Arithmetic results: one NaN (see canon).
[[gnu::always_inline]] inline f16 half_result(f32 value) { return to_half(canon(value)); }
[[gnu::always_inline]] inline f16 half_result(f64 value) { return to_half(canon(value)); }

[[gnu::always_inline]] inline f32 bf16_to_f32(u32 h) { return bits<f32>(h << 16); }

[[gnu::always_inline]] inline u32 f32_to_bf16(f32 value) {
  const u32 b = bits<u32>(value);
  const u32 rounded = (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
  return (b & 0x7fffffffu) > 0x7f800000u ? (b >> 16 | 0x40u) : rounded;
}

// A format with `E` exponent bits of bias `bias` and `M` mantissa bits. `top`: largest finite code; `inf`: code of an overflow
// without saturation; `nan`: NaN code. Formats without NaN saturate (inf == nan == top).
template <int E, int M, int bias, u32 top, u32 inf, u32 nan>
struct Tiny {
  static constexpr u32 sign_bit = 1u << (E + M);
  static constexpr u32 largest = top;
  static constexpr int mantissa = M;
  static constexpr int exponent_bias = bias;
  static constexpr short infinity = inf == nan ? -1 : static_cast<short>(inf);  // -1: the format has none

  [[gnu::always_inline]] static constexpr f32 decode(u32 code) {
    const u32 sign = (code & sign_bit) << (31 - E - M);
    const u32 m = code & (sign_bit - 1);
    const u32 normal = (m << (23 - M)) + (static_cast<u32>(127 - bias) << 23);
    const f32 one = pow2(1 - bias);
    const u32 subnormal = bits<u32>(bits<f32>((m << (23 - M)) + (static_cast<u32>(128 - bias) << 23)) - one);
    u32 r = m >> M == 0 ? subnormal : normal;
    if constexpr (inf != top) r = m == inf && inf != nan ? 0x7f800000u : m > top ? kNan32 : r;
    return bits<f32>(r | sign);
  }

  // Nearest even. NaN gives nan (the largest number in formats without one).
  [[gnu::always_inline]] static u32 encode(f32 value, bool saturate) {
    const u32 b = bits<u32>(value);
    const u32 m = b & 0x7fffffffu;
    const u32 round = (1u << (22 - M)) - 1u + (m >> (23 - M) & 1u);
    const u32 normal = ((m + round) >> (23 - M)) - (static_cast<u32>(127 - bias) << M);
    const f32 magic = pow2(24 - bias - M);
    const u32 subnormal = bits<u32>(bits<f32>(m) + magic) - bits<u32>(magic);
    return finish(m, m < bits<u32>(pow2(1 - bias)) ? subnormal : normal, saturate) | (b >> 31) * sign_bit;
  }

  // Stochastic rounding: the seed's top bits are added below the last mantissa bit, then the rest is cut off.
  [[gnu::always_inline]] static u32 encode_sr(f32 value, u32 seed, bool saturate) {
    const u32 b = bits<u32>(value);
    const u32 m = b & 0x7fffffffu;
    const u32 normal = ((m + (seed >> (9 + M))) >> (23 - M)) - (static_cast<u32>(127 - bias) << M);
    const u32 exponent = m >> 23;
    const u32 shift = static_cast<u32>(128 - bias) - exponent + (23 - M);  // discarded bits of a subnormal result
    const u64 significand = (m & 0x7fffffu) | (exponent ? 0x800000u : 0u);
    const u64 fixed = significand << 32 >> (shift < 56 ? shift : 56);
    const u32 subnormal = static_cast<u32>((fixed + seed) >> 32);
    return finish(m, m < bits<u32>(pow2(1 - bias)) ? subnormal : normal, saturate) | (b >> 31) * sign_bit;
  }

 private:
  [[gnu::always_inline]] static u32 finish(u32 m, u32 code, bool saturate) {
    const u32 over = saturate && m < 0x7f800000u ? top : inf;
    const u32 r = code > top || m >= 0x7f800000u ? over : code;
    return m > 0x7f800000u ? nan : r;
  }
};

using Fp8 = Tiny<4, 3, 7, 0x7e, 0x7f, 0x7f>;
using Bf8 = Tiny<5, 2, 15, 0x7b, 0x7c, 0x7f>;
using Fp6 = Tiny<2, 3, 1, 0x1f, 0x1f, 0x1f>;
using Bf6 = Tiny<3, 2, 3, 0x1f, 0x1f, 0x1f>;
using Fp4 = Tiny<2, 1, 1, 0x7, 0x7, 0x7>;

// MODE.FP16_OVFL: conversions to f16, fp8 and bf8 clamp instead of overflowing.
constexpr u32 kModeFp16Ovfl = 1u << 23;

}  // namespace
}  // namespace monoc::sim::alu::MONOC_ALU_NS
