// Sixteen f32 (or f64) values side by side, one column each of an MFMA tile, in the widest registers of the build.
#pragma once

#include "lanes.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

#if defined(__AVX512F__)

constexpr int kRowTile = 16;  // rows accumulated at once: what the register file holds

struct V16 {
  __m512 v;
  static V16 zero() { return {_mm512_setzero_ps()}; }
  static V16 load(const void* p) { return {_mm512_loadu_ps(p)}; }
  static V16 all(f32 x) { return {_mm512_set1_ps(x)}; }
  void store(void* p) const { _mm512_storeu_ps(p, v); }
};
// a * b + c with one rounding.
inline V16 fma16(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// The same where the product is exact.
inline V16 fma16_exact(V16 a, V16 b, V16 c) { return fma16(a, b, c); }
inline V16 canon16(V16 x) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), x.v, _mm512_set1_ps(bits<f32>(kNan32)))};
}

struct D16 {
  __m512d v[2];
  static D16 load(const f64* p) { return {{_mm512_loadu_pd(p), _mm512_loadu_pd(p + 8)}}; }
  void store(f64* p) const {
    _mm512_storeu_pd(p, v[0]);
    _mm512_storeu_pd(p + 8, v[1]);
  }
};
inline D16 widen(V16 x) {
  return {{_mm512_cvtps_pd(_mm512_castps512_ps256(x.v)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1))}};
}
inline V16 narrow(D16 x) {
  return {_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(x.v[0])), _mm512_cvtpd_ps(x.v[1]), 1)};
}
// acc + x * (a * b), the products exact.
inline D16 add_scaled(D16 acc, D16 x, f64 a, D16 b) {
  const __m512d s = _mm512_set1_pd(a);
  for (int i = 0; i < 2; ++i) acc.v[i] = _mm512_add_pd(acc.v[i], _mm512_mul_pd(x.v[i], _mm512_mul_pd(s, b.v[i])));
  return acc;
}

#elif defined(__AVX2__)

constexpr int kRowTile = 4;

struct V16 {
  __m256 v[2];
  static V16 zero() { return {{_mm256_setzero_ps(), _mm256_setzero_ps()}}; }
  static V16 load(const void* p) {
    const f32* q = static_cast<const f32*>(p);
    return {{_mm256_loadu_ps(q), _mm256_loadu_ps(q + 8)}};
  }
  static V16 all(f32 x) { return {{_mm256_set1_ps(x), _mm256_set1_ps(x)}}; }
  void store(void* p) const {
    f32* q = static_cast<f32*>(p);
    _mm256_storeu_ps(q, v[0]);
    _mm256_storeu_ps(q + 8, v[1]);
  }
};
inline V16 fma16(V16 a, V16 b, V16 c) {
  return {{_mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1])}};
}
inline V16 fma16_exact(V16 a, V16 b, V16 c) { return fma16(a, b, c); }
inline V16 canon16(V16 x) {
  const __m256 nan = _mm256_set1_ps(bits<f32>(kNan32));
  for (__m256& half : x.v) half = _mm256_blendv_ps(half, nan, _mm256_cmp_ps(half, half, _CMP_UNORD_Q));
  return x;
}

struct D16 {
  __m256d v[4];
  static D16 load(const f64* p) {
    return {{_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4), _mm256_loadu_pd(p + 8), _mm256_loadu_pd(p + 12)}};
  }
  void store(f64* p) const {
    for (int i = 0; i < 4; ++i) _mm256_storeu_pd(p + 4 * i, v[i]);
  }
};
inline D16 widen(V16 x) {
  D16 r;
  for (int i = 0; i < 2; ++i) {
    r.v[2 * i] = _mm256_cvtps_pd(_mm256_castps256_ps128(x.v[i]));
    r.v[2 * i + 1] = _mm256_cvtps_pd(_mm256_extractf128_ps(x.v[i], 1));
  }
  return r;
}
inline V16 narrow(D16 x) {
  V16 r;
  for (int i = 0; i < 2; ++i) r.v[i] = _mm256_set_m128(_mm256_cvtpd_ps(x.v[2 * i + 1]), _mm256_cvtpd_ps(x.v[2 * i]));
  return r;
}
inline D16 add_scaled(D16 acc, D16 x, f64 a, D16 b) {
  const __m256d s = _mm256_set1_pd(a);
  for (int i = 0; i < 4; ++i) acc.v[i] = _mm256_add_pd(acc.v[i], _mm256_mul_pd(x.v[i], _mm256_mul_pd(s, b.v[i])));
  return acc;
}

#else

constexpr int kRowTile = 4;

struct V16 {
  f32 v[16];
  static V16 zero() { return {}; }
  static V16 load(const void* p) {
    V16 r;
    __builtin_memcpy(r.v, p, sizeof(r.v));
    return r;
  }
  static V16 all(f32 x) {
    V16 r;
    for (f32& y : r.v) y = x;
    return r;
  }
  void store(void* p) const { __builtin_memcpy(p, v, sizeof(v)); }
};
inline V16 fma16(V16 a, V16 b, V16 c) {
  for (int i = 0; i < 16; ++i) c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
}
inline V16 fma16_exact(V16 a, V16 b, V16 c) {
  for (int i = 0; i < 16; ++i) c.v[i] = a.v[i] * b.v[i] + c.v[i];
  return c;
}
inline V16 canon16(V16 x) {
  for (f32& y : x.v) y = canon(y);
  return x;
}

struct D16 {
  f64 v[16];
  static D16 load(const f64* p) {
    D16 r;
    __builtin_memcpy(r.v, p, sizeof(r.v));
    return r;
  }
  void store(f64* p) const { __builtin_memcpy(p, v, sizeof(v)); }
};
inline D16 widen(V16 x) {
  D16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = x.v[i];
  return r;
}
inline V16 narrow(D16 x) {
  V16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<f32>(x.v[i]);
  return r;
}
inline D16 add_scaled(D16 acc, D16 x, f64 a, D16 b) {
  for (int i = 0; i < 16; ++i) acc.v[i] += x.v[i] * (a * b.v[i]);
  return acc;
}

#endif

// Register and first lane of row `row` of block `block` of a result tile: its columns are `size` lanes in a row.
struct TileRow {
  int reg;
  int lane;
};
template <int size>
constexpr TileRow tile_row(int block, int row) {
  if constexpr (size == 32) return {16 * block + 4 * (row / 8) + row % 4, 32 * (row / 4 % 2)};
  if constexpr (size == 16) return {4 * block + row % 4, 16 * (row / 4)};
  return {row, 4 * block};
}

}  // namespace
}  // namespace monoc::sim::alu::MONOC_ALU_NS
