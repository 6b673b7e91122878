// Marks the bytes of LDS an instruction's lanes touch, for the race check. Part of each instruction set's build.
#pragma once

#include "lds_race.hpp"
#include "state.hpp"

namespace monoc::sim::MONOC_SIM_ISA {

// `at`: byte addresses of 64 lanes, those of lanes that are off being some active lane's; all inside the CTA's LDS.
template <int BYTES>
[[gnu::noinline]] void mark_lanes(LdsMarks& marks, const Op& op, LdsMarks::Kind kind, const uint32_t* at) {
  uint32_t low = ~0u, high = 0, all = 0;
  for (int l = 0; l < 64; ++l) {
    low = at[l] < low ? at[l] : low;
    high = at[l] > high ? at[l] : high;
    all |= at[l];
  }
  marks.touch(op, kind, low, high + BYTES);
  uint8_t* bits = marks.bits[kind];
  if constexpr (BYTES == 16) {
    if (!(all & 15)) [[likely]] {
      const uint16_t whole = 0xffff;
      for (int l = 0; l < 64; ++l) __builtin_memcpy(bits + (at[l] >> 3), &whole, 2);
      return;
    }
  }
  if constexpr (BYTES == 8) {
    if (!(all & 7)) [[likely]] {
      for (int l = 0; l < 64; ++l) bits[at[l] >> 3] = 0xff;
      return;
    }
  }
  if constexpr (BYTES <= 4) {  // aligned to their size: within one byte of bits
    for (int l = 0; l < 64; ++l) bits[at[l] >> 3] |= uint8_t(((1u << BYTES) - 1) << (at[l] & 7));
    return;
  }
  for (int l = 0; l < 64; ++l) {
    uint32_t word;
    __builtin_memcpy(&word, bits + (at[l] >> 3), 4);
    word |= ((1u << BYTES) - 1) << (at[l] & 7);
    __builtin_memcpy(bits + (at[l] >> 3), &word, 4);
  }
}

template <int BYTES>
inline void mark_lds(Wave& w, const Op& op, LdsMarks::Kind kind, const uint32_t* at) {
  if (w.marks) mark_lanes<BYTES>(*w.marks, op, kind, at);
}

// Lanes that write the lowest BYTES of `data` >> SHIFT, before they do: those that change nothing are marked apart.
template <int BYTES, int SHIFT>
[[gnu::noinline]] void mark_writing_lanes(Wave& w, const Op& op, const uint32_t* at, const Lanes* data, uint64_t lanes) {
  uint64_t same = 0;
  for (uint64_t left = lanes; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    uint32_t value[BYTES < 4 ? 1 : BYTES / 4];
    for (int i = 0; i < int(sizeof value / 4); ++i) value[i] = data[i].v[l] >> SHIFT;
    bool there = __builtin_memcmp(w.cta->lds + at[l], value, BYTES) == 0;
    if (const uint8_t* written = w.cta->lds_written) {  // never-written bytes hold nothing yet
      written += at[l] >> 2;
      const int bits = BYTES < 4 ? ((1 << BYTES) - 1) << (at[l] & 3) : 15;
      for (int i = 0; i < int(sizeof value / 4); ++i) there = there && (written[i] & bits) == bits;
    }
    same |= uint64_t(there) << l;
  }
  if (!same) return mark_lanes<BYTES>(*w.marks, op, LdsMarks::write, at);
  if (same == lanes) return mark_lanes<BYTES>(*w.marks, op, LdsMarks::rewrite, at);
  alignas(64) uint32_t some[64];
  auto mark = [&](LdsMarks::Kind kind, uint64_t those) {
    uint32_t first = at[__builtin_ctzll(those)];
    for (int l = 0; l < 64; ++l) some[l] = (those >> l & 1) ? at[l] : first;
    mark_lanes<BYTES>(*w.marks, op, kind, some);
  };
  mark(LdsMarks::write, lanes & ~same);
  mark(LdsMarks::rewrite, same);
}

template <int BYTES, int SHIFT = 0>
inline void mark_lds_writes(Wave& w, const Op& op, const uint32_t* at, const Lanes* data, uint64_t lanes) {
  if (w.marks) mark_writing_lanes<BYTES, SHIFT>(w, op, at, data, lanes);
}

}  // namespace monoc::sim::MONOC_SIM_ISA
