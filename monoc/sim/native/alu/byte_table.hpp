// Decoding of fp8 and bf8 by table on AVX-512: every value of both formats is a bf16 number, and 128 magnitudes of 16 bits fit
// four registers.
#pragma once

#include "formats.hpp"

#if defined(__AVX512BW__)

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

// bf16 values of 32 codes, each in the low byte of a 16-bit lane (the high bytes do not matter).
template <class Format>
[[gnu::always_inline]] inline __m512i bf16_of_bytes(__m512i codes) {
  const u16* t = kByteTable<Format>.bf16;
  const __m512i low = _mm512_permutex2var_epi16(_mm512_load_si512(t), codes, _mm512_load_si512(t + 32));
  const __m512i high = _mm512_permutex2var_epi16(_mm512_load_si512(t + 64), codes, _mm512_load_si512(t + 96));
  const __mmask32 upper = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x40));
  const __m512i magnitude = _mm512_mask_blend_epi16(upper, low, high);
  // magnitude | (codes << 8 & 0x8000)
  return _mm512_ternarylogic_epi32(magnitude, _mm512_slli_epi16(codes, 8), _mm512_set1_epi16(static_cast<short>(0x8000)), 0xf8);
}

// f32 of the bf16 in the low / high half of each 32-bit lane.
[[gnu::always_inline]] inline __m512i f32_of_low(__m512i words) { return _mm512_slli_epi32(words, 16); }
[[gnu::always_inline]] inline __m512i f32_of_high(__m512i words) {
  return _mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
}

}  // namespace
}  // namespace monoc::sim::alu::MONOC_ALU_NS

#endif
