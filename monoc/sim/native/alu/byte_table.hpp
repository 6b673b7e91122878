// Decoding of fp8, bf8 and fp4 operands, sixteen (AVX-512) or eight (AVX2) dwords at once. Every fp8 and bf8 value is a bf16 number:
// AVX-512 finds it in a table of 128 magnitudes (four registers), AVX2 computes it and takes the denormals from a table.
#pragma once

#include "formats.hpp"

#if defined(__AVX512BW__) || defined(__AVX2__)
#define MONOC_ALU_BYTE_TABLE 1

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

struct ByteTable {
  alignas(64) u16 bf16[128];
};

template <class Format>
constexpr ByteTable make_byte_table() {
  ByteTable table{};
  for (u32 code = 0; code < 128; ++code) table.bf16[code] = static_cast<u16>(bits<u32>(Format::decode(code)) >> 16);
  return table;
}

template <class Format>
constexpr ByteTable kByteTable = make_byte_table<Format>();

#if defined(__AVX512BW__)

using Words = __m512i;
constexpr int kWords = 16;

[[gnu::always_inline]] inline Words load_words(const u32* p) { return _mm512_load_si512(p); }
[[gnu::always_inline]] inline void store_words(void* p, Words w) { _mm512_store_si512(p, w); }
[[gnu::always_inline]] inline Words right(Words w, u32 count) { return _mm512_srl_epi32(w, _mm_cvtsi32_si128(static_cast<int>(count))); }
[[gnu::always_inline]] inline Words odd_bytes(Words w) { return _mm512_srli_epi16(w, 8); }

// bf16 values of codes in the low byte of each 16-bit lane (the high bytes do not matter).
template <class Format>
[[gnu::always_inline]] inline Words bf16_of_bytes(Words codes) {
  const u16* t = kByteTable<Format>.bf16;
  const Words low = _mm512_permutex2var_epi16(_mm512_load_si512(t), codes, _mm512_load_si512(t + 32));
  const Words high = _mm512_permutex2var_epi16(_mm512_load_si512(t + 64), codes, _mm512_load_si512(t + 96));
  const __mmask32 upper = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x40));
  const Words magnitude = _mm512_mask_blend_epi16(upper, low, high);
  // magnitude | (codes << 8 & 0x8000)
  return _mm512_ternarylogic_epi32(magnitude, _mm512_slli_epi16(codes, 8), _mm512_set1_epi16(static_cast<short>(0x8000)), 0xf8);
}

// Bytes 0 and 1 of each dword, in the low bytes of its 16-bit lanes.
[[gnu::always_inline]] inline Words low_bytes(Words w) {
  return _mm512_mask_blend_epi16(0xaaaaaaaau, w, _mm512_slli_epi32(w, 8));
}

// f32 of the bf16 in the low / high half of each 32-bit lane.
[[gnu::always_inline]] inline Words f32_of_low(Words w) { return _mm512_slli_epi32(w, 16); }
[[gnu::always_inline]] inline Words f32_of_high(Words w) { return _mm512_and_si512(w, _mm512_set1_epi32(static_cast<int>(0xffff0000))); }

// f32 of the fp4 code in bits 4 j + 3 : 4 j of each dword.
[[gnu::always_inline]] inline Words f32_of_nibble(Words w, int j) {
  const __m512 table = _mm512_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6);
  return _mm512_castps_si512(_mm512_permutexvar_ps(_mm512_srli_epi32(w, static_cast<u32>(4 * j)), table));
}

#else

using Words = __m256i;
constexpr int kWords = 8;

[[gnu::always_inline]] inline Words load_words(const u32* p) { return _mm256_load_si256(reinterpret_cast<const Words*>(p)); }
[[gnu::always_inline]] inline void store_words(void* p, Words w) { _mm256_store_si256(static_cast<Words*>(p), w); }
[[gnu::always_inline]] inline Words right(Words w, u32 count) { return _mm256_srl_epi32(w, _mm_cvtsi32_si128(static_cast<int>(count))); }
[[gnu::always_inline]] inline Words odd_bytes(Words w) { return _mm256_srli_epi16(w, 8); }

template <class Format>
[[gnu::always_inline]] inline Words bf16_of_bytes(Words codes) {
  constexpr int m = Format::mantissa;
  const Words code = _mm256_and_si256(codes, _mm256_set1_epi16(0x7f));
  const Words normal = _mm256_add_epi16(_mm256_slli_epi16(code, 7 - m), _mm256_set1_epi16((127 - Format::exponent_bias) << 7));
  // The words of codes 0 to 7 start at byte 2 * code.
  const Words at = _mm256_add_epi16(_mm256_mullo_epi16(code, _mm256_set1_epi16(0x0202)), _mm256_set1_epi16(0x0100));
  const __m128i denormals = _mm_load_si128(reinterpret_cast<const __m128i*>(kByteTable<Format>.bf16));
  const Words small = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(denormals), at);
  const Words finite = _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi16(_mm256_set1_epi16(1 << m), code));
  const Words infinite = _mm256_cmpeq_epi16(code, _mm256_set1_epi16(Format::infinity));
  const Words beyond = _mm256_blendv_epi8(_mm256_set1_epi16(0x7fc0), _mm256_set1_epi16(0x7f80), infinite);
  const Words value = _mm256_blendv_epi8(finite, beyond, _mm256_cmpgt_epi16(code, _mm256_set1_epi16(Format::largest)));
  return _mm256_or_si256(value, _mm256_and_si256(_mm256_slli_epi16(codes, 8), _mm256_set1_epi16(static_cast<short>(0x8000))));
}

[[gnu::always_inline]] inline Words low_bytes(Words w) { return _mm256_blend_epi16(w, _mm256_slli_epi32(w, 8), 0xaa); }
[[gnu::always_inline]] inline Words f32_of_low(Words w) { return _mm256_slli_epi32(w, 16); }
[[gnu::always_inline]] inline Words f32_of_high(Words w) { return _mm256_and_si256(w, _mm256_set1_epi32(static_cast<int>(0xffff0000))); }

[[gnu::always_inline]] inline Words f32_of_nibble(Words w, int j) {
  const __m256 table = _mm256_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6);
  const Words code = _mm256_srli_epi32(w, 4 * j);
  const Words magnitude = _mm256_castps_si256(_mm256_permutevar8x32_ps(table, code));
  const Words sign = _mm256_and_si256(_mm256_slli_epi32(code, 28), _mm256_set1_epi32(static_cast<int>(0x80000000)));
  return _mm256_or_si256(magnitude, sign);
}

#endif

}  // namespace
}  // namespace monoc::sim::alu::MONOC_ALU_NS

#endif
