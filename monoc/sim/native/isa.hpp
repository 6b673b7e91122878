// The hot translation units are compiled once per instruction set; MONOC_SIM_ISA names the build's namespace. They use
// no standard-library templates, so that no inline function compiled for a newer CPU can replace a baseline one at link time.
#pragma once

#include <span>

#include "state.hpp"

#ifndef MONOC_SIM_ISA
#error "compile with -DMONOC_SIM_ISA=baseline, avx2 or avx512"
#endif

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace monoc::sim::MONOC_SIM_ISA {

std::span<const HandlerEntry> vector_handlers();
std::span<const HandlerEntry> memory_handlers();
std::span<const HandlerEntry> atomic_handlers();
std::span<const HandlerEntry> lds_handlers();

namespace {

inline void fill(Lanes& d, uint32_t value) {
#if defined(__AVX512F__)
  __m512i v = _mm512_set1_epi32(int(value));
  for (int i = 0; i < 64; i += 16) _mm512_store_si512(d.v + i, v);
#else
  for (int i = 0; i < 64; ++i) d.v[i] = value;
#endif
}

inline void copy(Lanes& d, const Lanes& s) {
#if defined(__AVX512F__)
  for (int i = 0; i < 64; i += 16) _mm512_store_si512(d.v + i, _mm512_load_si512(s.v + i));
#else
  __builtin_memmove(&d, &s, sizeof d);
#endif
}

// d = mask ? s : d, lane by lane.
inline void blend(Lanes& d, const Lanes& s, uint64_t mask) {
#if defined(__AVX512F__)
  for (int i = 0; i < 4; ++i)
    _mm512_mask_store_epi32(d.v + 16 * i, __mmask16(mask >> (16 * i)), _mm512_load_si512(s.v + 16 * i));
#elif defined(__AVX2__)
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  for (int i = 0; i < 8; ++i) {
    __m256i on = _mm256_set1_epi32(int(mask >> (8 * i) & 0xff));
    __m256i keep = _mm256_cmpeq_epi32(_mm256_and_si256(on, bits), bits);
    _mm256_maskstore_epi32(reinterpret_cast<int*>(d.v + 8 * i), keep,
                           _mm256_load_si256(reinterpret_cast<const __m256i*>(s.v + 8 * i)));
  }
#else
  for (int i = 0; i < 64; ++i) d.v[i] = (mask >> i & 1) ? s.v[i] : d.v[i];
#endif
}

}  // namespace
}  // namespace monoc::sim::MONOC_SIM_ISA
