// LDS reads and writes, lane permutes through the LDS crossbar, transposed reads.
// CDNA3 ISA chapter "Data Share"; gfx950 transposed reads: LLVM AMDGPUUsage and the CDNA4 ISA ("DS_READ_B64_TR_B*").
#include "address.hpp"
#include "lds_marks.hpp"

namespace monoc::sim::MONOC_SIM_ISA {
namespace {

// Byte addresses of the active lanes; others get a valid one. False after a finding.
inline bool lds_address(Wave& w, const Op& op, uint32_t* at, uint32_t offset, uint32_t bytes, uint32_t alignment) {
  uint64_t exec = w.exec();
  const uint32_t* v = w.vgpr[op.mem.vaddr].v;
  uint32_t high = 0, all = 0;
  if (exec == ~0ull) {
    for (int l = 0; l < 64; ++l) at[l] = v[l] + offset;
  } else {
    uint32_t first = v[__builtin_ctzll(exec)] + offset;
    for (int l = 0; l < 64; ++l) at[l] = (exec >> l & 1) ? v[l] + offset : first;
  }
  for (int l = 0; l < 64; ++l) {
    high = at[l] > high ? at[l] : high;
    all |= at[l];
  }
  if (uint64_t(high) + bytes > w.cta->lds_bytes) [[unlikely]] {
    for (int l = 0; l < 64; ++l)
      if ((exec >> l & 1) && uint64_t(at[l]) + bytes > w.cta->lds_bytes) {
        report_number(w, op, "bounds", "LDS address %llu lies behind the CTA's LDS", at[l], l);
        return false;
      }
  }
  if (all & (alignment - 1)) [[unlikely]] {
    for (int l = 0; l < 64; ++l)
      if ((exec >> l & 1) && (at[l] & (alignment - 1))) {
        report_number(w, op, "misaligned", "LDS address %llu is not aligned", at[l], l);
        return false;
      }
  }
  return true;
}

inline uint32_t word(const uint8_t* p) {
  uint32_t value;
  __builtin_memcpy(&value, p, 4);
  return value;
}

template <int DWORDS>
inline void lds_gather(const Wave& w, const uint32_t* at, Lanes* d) {
  const uint8_t* lds = w.cta->lds;
#if defined(__SSE2__)
  if constexpr (DWORDS == 4) {
    for (int l = 0; l < 64; l += 4) {
      __m128i r0 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lds + at[l]));
      __m128i r1 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lds + at[l + 1]));
      __m128i r2 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lds + at[l + 2]));
      __m128i r3 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lds + at[l + 3]));
      __m128i a = _mm_unpacklo_epi32(r0, r1), b = _mm_unpackhi_epi32(r0, r1);
      __m128i c = _mm_unpacklo_epi32(r2, r3), e = _mm_unpackhi_epi32(r2, r3);
      _mm_store_si128(reinterpret_cast<__m128i*>(d[0].v + l), _mm_unpacklo_epi64(a, c));
      _mm_store_si128(reinterpret_cast<__m128i*>(d[1].v + l), _mm_unpackhi_epi64(a, c));
      _mm_store_si128(reinterpret_cast<__m128i*>(d[2].v + l), _mm_unpacklo_epi64(b, e));
      _mm_store_si128(reinterpret_cast<__m128i*>(d[3].v + l), _mm_unpackhi_epi64(b, e));
    }
    return;
  }
#endif
  for (int l = 0; l < 64; ++l)
    for (int i = 0; i < DWORDS; ++i) d[i].v[l] = word(lds + at[l] + 4 * i);
}

// Poison of `dwords` registers from `reg` on.
inline void lds_read_poison(Wave& w, const uint32_t* at, int dwords, uint32_t need, int reg) {
  const uint8_t* written = w.cta->lds_written;
  if (!written) {
    if (w.poisoned)
      for (int d = 0; d < dwords; ++d) w.poison->v[reg + d] &= ~w.exec();
    return;
  }
  uint64_t exec = w.exec();
  uint32_t full = need;
  for (int d = 0; d < dwords; ++d) {
    uint32_t missing = 0;
    for (int l = 0; l < 64; ++l) missing |= ~uint32_t(written[(at[l] >> 2) + d]) & (full == 15 ? 15u : full << (at[l] & 3));
    if (!(missing & 15)) [[likely]] {
      if (w.poisoned) w.poison->v[reg + d] &= ~exec;
      continue;
    }
    uint64_t bad = 0;
    for (int l = 0; l < 64; ++l) {
      uint32_t bits = full == 15 ? 15u : full << (at[l] & 3);
      bad |= uint64_t((written[(at[l] >> 2) + d] & bits) != bits) << l;
    }
    bad &= exec;
    uint64_t& p = ensure_poison(w).v[reg + d];
    p = (p & ~exec) | bad;
  }
}

template <int DWORDS>
void ds_read(Wave& w, const Op& op) {
  uint64_t exec = w.exec();
  alignas(64) uint32_t at[64];
  if (exec == 0 || !lds_address(w, op, at, uint32_t(op.mem.offset), 4 * DWORDS, 4)) return;
  mark_lds<4 * DWORDS>(w, op, LdsMarks::read, at);
  Lanes* dst = w.vgpr + op.mem.vdata;
  if (exec == ~0ull) {
    lds_gather<DWORDS>(w, at, dst);
  } else {
    Lanes* t = w.tc->scratch;
    lds_gather<DWORDS>(w, at, t);
    for (int i = 0; i < DWORDS; ++i) blend(dst[i], t[i], exec);
  }
  lds_read_poison(w, at, DWORDS, 15, op.mem.vdata);
}

// read2: two addresses, offsets already scaled to bytes (imm, imm2).
template <int DWORDS>
void ds_read2(Wave& w, const Op& op) {
  uint64_t exec = w.exec();
  alignas(64) uint32_t at[2][64];
  if (exec == 0 || !lds_address(w, op, at[0], uint32_t(op.imm), 4 * DWORDS, 4) ||
      !lds_address(w, op, at[1], uint32_t(op.imm2), 4 * DWORDS, 4))
    return;
  mark_lds<4 * DWORDS>(w, op, LdsMarks::read, at[0]);
  mark_lds<4 * DWORDS>(w, op, LdsMarks::read, at[1]);
  Lanes* dst = w.vgpr + op.mem.vdata;
  Lanes* t = exec == ~0ull ? dst : w.tc->scratch;
  lds_gather<DWORDS>(w, at[0], t);
  lds_gather<DWORDS>(w, at[1], t + DWORDS);
  if (t != dst)
    for (int i = 0; i < 2 * DWORDS; ++i) blend(dst[i], t[i], exec);
  lds_read_poison(w, at[0], DWORDS, 15, op.mem.vdata);
  lds_read_poison(w, at[1], DWORDS, 15, op.mem.vdata + DWORDS);
}

template <Data D>
void ds_read_small(Wave& w, const Op& op) {
  uint64_t exec = w.exec();
  constexpr bool byte = D == Data::u8 || D == Data::i8 || D == Data::u8_d16 || D == Data::u8_d16_hi ||
                        D == Data::i8_d16 || D == Data::i8_d16_hi;
  alignas(64) uint32_t at[64];
  if (exec == 0 || !lds_address(w, op, at, uint32_t(op.mem.offset), byte ? 1 : 2, byte ? 1 : 2)) return;
  mark_lds<byte ? 1 : 2>(w, op, LdsMarks::read, at);
  uint32_t* dst = w.vgpr[op.mem.vdata].v;
  uint64_t before = w.poisoned ? w.poison->v[op.mem.vdata] : 0;
  for (uint64_t left = exec; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    const uint8_t* p = w.cta->lds + at[l];
    uint32_t value = byte ? p[0] : p[0] | uint32_t(p[1]) << 8;
    if (D == Data::i8 || D == Data::i8_d16 || D == Data::i8_d16_hi) value = uint32_t(int32_t(int8_t(value)));
    if (D == Data::i16) value = uint32_t(int32_t(int16_t(value)));
    if (D == Data::u8_d16 || D == Data::i8_d16 || D == Data::b16_d16) value = (dst[l] & 0xffff0000) | (value & 0xffff);
    if (D == Data::u8_d16_hi || D == Data::i8_d16_hi || D == Data::b16_d16_hi) value = (dst[l] & 0xffff) | value << 16;
    dst[l] = value;
  }
  lds_read_poison(w, at, 1, byte ? 1 : 3, op.mem.vdata);
  if (before && D >= Data::u8_d16 && D <= Data::b16_d16_hi) w.poison->v[op.mem.vdata] |= before;
}

inline void mark_written(Wave& w, uint32_t at, int dword, uint64_t poison, int lane) {
  w.cta->lds_written[(at >> 2) + dword] = (poison >> lane & 1) ? 0 : 15;
}

// A write counts as a change; in a CTA that has been visited often only if it changes something.
template <int DWORDS>
inline void lds_changes(Wave& w, const uint32_t* at, int reg) {
  if (w.tc->careful) [[unlikely]] {
    const Lanes* s = w.vgpr + reg;
    bool same = true;
    for (uint64_t left = w.exec(); left; left &= left - 1) {
      int l = __builtin_ctzll(left);
      for (int i = 0; i < DWORDS; ++i) same &= word(w.cta->lds + at[l] + 4 * i) == s[i].v[l];
    }
    if (same) return;
  }
  w.tc->changed();
}

template <int DWORDS>
inline void lds_scatter(Wave& w, const uint32_t* at, int reg) {
  lds_changes<DWORDS>(w, at, reg);
  const Lanes* s = w.vgpr + reg;
  uint8_t* lds = w.cta->lds;
  uint64_t exec = w.exec();
  for (uint64_t left = exec; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    uint32_t v[DWORDS];
    for (int i = 0; i < DWORDS; ++i) v[i] = s[i].v[l];
    __builtin_memcpy(lds + at[l], v, 4 * DWORDS);
  }
  uint8_t* written = w.cta->lds_written;
  if (!written) return;
  if (!w.poisoned) {
    for (uint64_t left = exec; left; left &= left - 1) {
      int l = __builtin_ctzll(left);
      __builtin_memset(written + (at[l] >> 2), 15, DWORDS);
    }
    return;
  }
  for (int d = 0; d < DWORDS; ++d)
    for (uint64_t left = exec; left; left &= left - 1) {
      int l = __builtin_ctzll(left);
      mark_written(w, at[l], d, w.poison->v[reg + d], l);
    }
}

template <int DWORDS>
void ds_write(Wave& w, const Op& op) {
  alignas(64) uint32_t at[64];
  if (w.exec() == 0 || !lds_address(w, op, at, uint32_t(op.mem.offset), 4 * DWORDS, 4)) return;
  mark_lds_writes<4 * DWORDS>(w, op, at, w.vgpr + op.mem.vdata, w.exec());
  lds_scatter<DWORDS>(w, at, op.mem.vdata);
}

template <int DWORDS>
void ds_write2(Wave& w, const Op& op) {
  alignas(64) uint32_t at[2][64];
  if (w.exec() == 0 || !lds_address(w, op, at[0], uint32_t(op.imm), 4 * DWORDS, 4) ||
      !lds_address(w, op, at[1], uint32_t(op.imm2), 4 * DWORDS, 4))
    return;
  mark_lds_writes<4 * DWORDS>(w, op, at[0], w.vgpr + op.mem.vdata, w.exec());
  mark_lds_writes<4 * DWORDS>(w, op, at[1], w.vgpr + op.src[1].index, w.exec());
  lds_scatter<DWORDS>(w, at[0], op.mem.vdata);
  lds_scatter<DWORDS>(w, at[1], int(op.src[1].index));
}

template <int BYTES, int SHIFT>
void ds_write_small(Wave& w, const Op& op) {
  alignas(64) uint32_t at[64];
  if (w.exec() == 0 || !lds_address(w, op, at, uint32_t(op.mem.offset), BYTES, BYTES)) return;
  mark_lds_writes<BYTES, SHIFT>(w, op, at, w.vgpr + op.mem.vdata, w.exec());
  const uint32_t* s = w.vgpr[op.mem.vdata].v;
  bool changed = !w.tc->careful;
  for (uint64_t left = w.exec(); left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    uint32_t value = s[l] >> SHIFT;
    changed |= __builtin_memcmp(w.cta->lds + at[l], &value, BYTES) != 0;
    __builtin_memcpy(w.cta->lds + at[l], &value, BYTES);
    if (uint8_t* written = w.cta->lds_written) {
      uint8_t bits = uint8_t(((1 << BYTES) - 1) << (at[l] & 3));
      bool bad = w.poisoned && (w.poison->v[op.mem.vdata] >> l & 1);
      written[at[l] >> 2] = bad ? uint8_t(written[at[l] >> 2] & ~bits) : uint8_t(written[at[l] >> 2] | bits);
    }
  }
  if (changed) w.tc->changed();
}

// Pull: lane l takes lane (address / 4) % 64 of the data; a source lane that is off gives 0.
void ds_bpermute_b32(Wave& w, const Op& op) {
  uint64_t exec = w.exec();
  const uint32_t* index = w.vgpr[op.mem.vaddr].v;
  const uint32_t* data = w.vgpr[op.mem.vdata].v;
  alignas(64) Lanes t;
  if (exec == ~0ull) {
    for (int l = 0; l < 64; ++l) t.v[l] = data[(index[l] + uint32_t(op.mem.offset)) >> 2 & 63];
    copy(w.vgpr[op.dst], t);
    return;
  }
  for (int l = 0; l < 64; ++l) {
    uint32_t from = (index[l] + uint32_t(op.mem.offset)) >> 2 & 63;
    t.v[l] = (exec >> from & 1) ? data[from] : 0;
  }
  blend(w.vgpr[op.dst], t, exec);
}

// Push: lane l sends to lane (address / 4) % 64; the highest sender wins, lanes nobody sends to get 0.
void ds_permute_b32(Wave& w, const Op& op) {
  uint64_t exec = w.exec();
  alignas(64) Lanes t;
  fill(t, 0);
  for (uint64_t left = exec; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    t.v[(w.vgpr[op.mem.vaddr].v[l] + uint32_t(op.mem.offset)) >> 2 & 63] = w.vgpr[op.mem.vdata].v[l];
  }
  blend(w.vgpr[op.dst], t, exec);
}

void ds_swizzle_b32(Wave& w, const Op& op) {
  uint64_t exec = w.exec();
  const uint32_t* data = w.vgpr[op.mem.vaddr].v;
  alignas(64) Lanes t;
  for (int l = 0; l < 64; ++l) {
    int from = op.extra->lane[l];
    t.v[l] = (exec >> from & 1) ? data[from] : 0;
  }
  blend(w.vgpr[op.dst], t, exec);
}

// Transposed reads work on groups of 16 lanes: each lane fetches 64 bits (96 for b6) from its address; seen as a
// 16 x n matrix of elements with a lane's fetch as part of a row, lane i of the group gets column i. Element e of lane i
// comes from element (i % n) of the fetch of lane n' = e * (16 / n)... with n elements a fetch: row e of the matrix is held by
// 16 / n lanes, e * 16 / n on.
template <int BITS, int COUNT>
void ds_read_tr(Wave& w, const Op& op) {
  constexpr int kBytes = BITS * COUNT / 8;
  alignas(64) uint32_t at[64];
  if (w.exec() == 0 || !lds_address(w, op, at, uint32_t(op.mem.offset), kBytes, BITS == 6 ? 4 : 8)) return;
  if (w.exec() != ~0ull) return report(w, op, "unsupported", "transposed LDS read with lanes switched off");
  constexpr int D = kBytes / 4;
  mark_lds<kBytes>(w, op, LdsMarks::read, at);
  alignas(64) Lanes in[D], out[D];
  lds_gather<D>(w, at, in);
  for (int d = 0; d < D; ++d) fill(out[d], 0);
  auto element = [&](const Lanes* v, int lane, int e) {
    int bit = e * BITS;
    uint64_t pair = v[bit / 32].v[lane];
    if (bit / 32 + 1 < D) pair |= uint64_t(v[bit / 32 + 1].v[lane]) << 32;
    return uint32_t(pair >> (bit % 32)) & ((1u << BITS) - 1);
  };
  constexpr int kLanesARow = 16 / COUNT > 0 ? 16 / COUNT : 1;
  for (int group = 0; group < 64; group += 16)
    for (int i = 0; i < 16; ++i)
      for (int e = 0; e < COUNT; ++e) {
        int from = group + (e * kLanesARow + i / COUNT) % 16;
        uint64_t value = element(in, from, i % COUNT);
        int bit = e * BITS;
        out[bit / 32].v[group + i] |= uint32_t(value << (bit % 32));
        if (bit % 32 + BITS > 32) out[bit / 32 + 1].v[group + i] |= uint32_t(value >> (32 - bit % 32));
      }
  for (int d = 0; d < D; ++d) copy(w.vgpr[op.mem.vdata + d], out[d]);
  lds_read_poison(w, at, D, 15, op.mem.vdata);
}

const HandlerEntry kLds[] = {
    {"ds_read_b32", ds_read<1>}, {"ds_read_b64", ds_read<2>}, {"ds_read_b96", ds_read<3>}, {"ds_read_b128", ds_read<4>},
    {"ds_read2_b32", ds_read2<1>}, {"ds_read2_b64", ds_read2<2>}, {"ds_read_u8", ds_read_small<Data::u8>},
    {"ds_read_i8", ds_read_small<Data::i8>}, {"ds_read_u16", ds_read_small<Data::u16>},
    {"ds_read_i16", ds_read_small<Data::i16>}, {"ds_read_u8_d16", ds_read_small<Data::u8_d16>},
    {"ds_read_u8_d16_hi", ds_read_small<Data::u8_d16_hi>}, {"ds_read_i8_d16", ds_read_small<Data::i8_d16>},
    {"ds_read_i8_d16_hi", ds_read_small<Data::i8_d16_hi>}, {"ds_read_u16_d16", ds_read_small<Data::b16_d16>},
    {"ds_read_u16_d16_hi", ds_read_small<Data::b16_d16_hi>}, {"ds_write_b32", ds_write<1>},
    {"ds_write_b64", ds_write<2>}, {"ds_write_b96", ds_write<3>}, {"ds_write_b128", ds_write<4>},
    {"ds_write2_b32", ds_write2<1>}, {"ds_write2_b64", ds_write2<2>}, {"ds_write_b8", ds_write_small<1, 0>},
    {"ds_write_b16", ds_write_small<2, 0>}, {"ds_write_b8_d16_hi", ds_write_small<1, 16>},
    {"ds_write_b16_d16_hi", ds_write_small<2, 16>}, {"ds_bpermute_b32", ds_bpermute_b32},
    {"ds_permute_b32", ds_permute_b32}, {"ds_swizzle_b32", ds_swizzle_b32},
    {"ds_read_b64_tr_b16", ds_read_tr<16, 4>}, {"ds_read_b64_tr_b8", ds_read_tr<8, 8>},
    {"ds_read_b64_tr_b4", ds_read_tr<4, 16>}, {"ds_read_b96_tr_b6", ds_read_tr<6, 16>},
};

}  // namespace

std::span<const HandlerEntry> lds_handlers() { return kLds; }

}  // namespace monoc::sim::MONOC_SIM_ISA
