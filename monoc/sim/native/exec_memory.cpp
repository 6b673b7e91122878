// Loads and stores of global, flat, buffer and scratch memory.
#include "address.hpp"
#include "lds_marks.hpp"

namespace monoc::sim::MONOC_SIM_ISA {
namespace {

inline uint32_t load4(uint64_t address) { return __atomic_load_n(reinterpret_cast<uint32_t*>(address), __ATOMIC_RELAXED); }
inline uint16_t load2(uint64_t address) { return __atomic_load_n(reinterpret_cast<uint16_t*>(address), __ATOMIC_RELAXED); }
inline uint8_t load1(uint64_t address) { return __atomic_load_n(reinterpret_cast<uint8_t*>(address), __ATOMIC_RELAXED); }
// Aligned eight-byte moves are single host accesses: another thread never sees half a tagged pair.
inline uint64_t load8(uint64_t address) {
  uint64_t value;
  __builtin_memcpy(&value, reinterpret_cast<const void*>(address), 8);
  return value;
}

template <Data D>
inline void gather(const uint64_t* addr, Lanes* d) {
  if constexpr (D == Data::u8) {
    for (int l = 0; l < 64; ++l) d->v[l] = load1(addr[l]);
  } else if constexpr (D == Data::i8) {
    for (int l = 0; l < 64; ++l) d->v[l] = uint32_t(int32_t(int8_t(load1(addr[l]))));
  } else if constexpr (D == Data::u16) {
    for (int l = 0; l < 64; ++l) d->v[l] = load2(addr[l]);
  } else if constexpr (D == Data::i16) {
    for (int l = 0; l < 64; ++l) d->v[l] = uint32_t(int32_t(int16_t(load2(addr[l]))));
  } else if constexpr (D == Data::u8_d16 || D == Data::u8_d16_hi) {
    constexpr int shift = D == Data::u8_d16_hi ? 16 : 0;
    for (int l = 0; l < 64; ++l) d->v[l] = (d->v[l] & ~(0xffffu << shift)) | uint32_t(load1(addr[l])) << shift;
  } else if constexpr (D == Data::i8_d16 || D == Data::i8_d16_hi) {
    constexpr int shift = D == Data::i8_d16_hi ? 16 : 0;
    for (int l = 0; l < 64; ++l)
      d->v[l] = (d->v[l] & ~(0xffffu << shift)) | uint32_t(uint16_t(int16_t(int8_t(load1(addr[l]))))) << shift;
  } else if constexpr (D == Data::b16_d16 || D == Data::b16_d16_hi) {
    constexpr int shift = D == Data::b16_d16_hi ? 16 : 0;
    for (int l = 0; l < 64; ++l) d->v[l] = (d->v[l] & ~(0xffffu << shift)) | uint32_t(load2(addr[l])) << shift;
  } else if constexpr (D == Data::b32) {
    for (int l = 0; l < 64; ++l) d->v[l] = load4(addr[l]);
  } else if constexpr (D == Data::b64) {
    for (int l = 0; l < 64; ++l) {
      uint64_t value = load8(addr[l]);
      d[0].v[l] = uint32_t(value);
      d[1].v[l] = uint32_t(value >> 32);
    }
  } else if constexpr (D == Data::b96) {
    for (int l = 0; l < 64; ++l) {
      uint64_t value = load8(addr[l]);
      d[0].v[l] = uint32_t(value);
      d[1].v[l] = uint32_t(value >> 32);
      d[2].v[l] = load4(addr[l] + 8);
    }
  } else {
#if defined(__SSE2__)
    for (int l = 0; l < 64; l += 4) {
      __m128i r0 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(addr[l]));
      __m128i r1 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(addr[l + 1]));
      __m128i r2 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(addr[l + 2]));
      __m128i r3 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(addr[l + 3]));
      __m128i a = _mm_unpacklo_epi32(r0, r1), b = _mm_unpackhi_epi32(r0, r1);
      __m128i c = _mm_unpacklo_epi32(r2, r3), e = _mm_unpackhi_epi32(r2, r3);
      _mm_store_si128(reinterpret_cast<__m128i*>(d[0].v + l), _mm_unpacklo_epi64(a, c));
      _mm_store_si128(reinterpret_cast<__m128i*>(d[1].v + l), _mm_unpackhi_epi64(a, c));
      _mm_store_si128(reinterpret_cast<__m128i*>(d[2].v + l), _mm_unpacklo_epi64(b, e));
      _mm_store_si128(reinterpret_cast<__m128i*>(d[3].v + l), _mm_unpackhi_epi64(b, e));
    }
#else
    for (int l = 0; l < 64; ++l) {
      uint64_t low = load8(addr[l]), high = load8(addr[l] + 8);
      d[0].v[l] = uint32_t(low);
      d[1].v[l] = uint32_t(low >> 32);
      d[2].v[l] = uint32_t(high);
      d[3].v[l] = uint32_t(high >> 32);
    }
#endif
  }
}

inline void store8(uint64_t address, uint64_t value) { __atomic_store_n(reinterpret_cast<uint64_t*>(address), value, __ATOMIC_RELAXED); }
inline void store4(uint64_t address, uint32_t value) { __atomic_store_n(reinterpret_cast<uint32_t*>(address), value, __ATOMIC_RELAXED); }

template <Data D>
inline void put(uint64_t address, const Lanes* s, int l) {
  if constexpr (D == Data::u8) {
    __atomic_store_n(reinterpret_cast<uint8_t*>(address), uint8_t(s->v[l]), __ATOMIC_RELAXED);
  } else if constexpr (D == Data::u8_d16_hi) {
    __atomic_store_n(reinterpret_cast<uint8_t*>(address), uint8_t(s->v[l] >> 16), __ATOMIC_RELAXED);
  } else if constexpr (D == Data::u16) {
    __atomic_store_n(reinterpret_cast<uint16_t*>(address), uint16_t(s->v[l]), __ATOMIC_RELAXED);
  } else if constexpr (D == Data::b16_d16_hi) {
    __atomic_store_n(reinterpret_cast<uint16_t*>(address), uint16_t(s->v[l] >> 16), __ATOMIC_RELAXED);
  } else if constexpr (D == Data::b32) {
    store4(address, s->v[l]);
  } else {
    store8(address, s[0].v[l] | uint64_t(s[1].v[l]) << 32);
    if constexpr (D == Data::b96) store4(address + 8, s[2].v[l]);
    if constexpr (D == Data::b128) store8(address + 8, s[2].v[l] | uint64_t(s[3].v[l]) << 32);
  }
}

template <Data D>
inline void scatter(const uint64_t* addr, const Lanes* s, uint64_t lanes) {
  if (lanes == ~0ull) {
    for (int l = 0; l < 64; ++l) put<D>(addr[l], s, l);
    return;
  }
  for (; lanes; lanes &= lanes - 1) {
    int l = __builtin_ctzll(lanes);
    put<D>(addr[l], s, l);
  }
}

constexpr bool keeps_half(Data d) { return d >= Data::u8_d16 && d <= Data::b16_d16_hi; }

// Which of `lanes`, all in `buffer`, load a never-written byte: a mask a dword. Lanes cut by num_records count by the dwords they read.
[[gnu::noinline]] void unwritten_lanes(const MemInfo& m, const Access& a, const Buffer& buffer, uint64_t lanes, uint64_t* bad) {
  for (int d = 0; d < 4; ++d) bad[d] = 0;
  uint8_t* written = buffer.written.load(std::memory_order_acquire);
  if (!written) return;
  uint64_t whole = lanes & ~a.partial;
  if (whole) {
    Access inside;
    const uint64_t* addr = a.addr;
    if (whole != a.active) {  // other lanes' addresses are in other buffers, or reach behind this one
      inside = a;
      inside.active = whole;
      settle(inside);
      addr = inside.addr;
    }
    for (int d = 0; d < m.dwords; ++d)
      for (int l = 0; l < 64; ++l) {
        uint8_t need = m.bytes >= 4 ? 15 : uint8_t(((1 << m.bytes) - 1) << (addr[l] & 3));
        bad[d] |= uint64_t((written_at(written, buffer, addr[l])[d] & need) != need) << l;
      }
    for (int d = 0; d < m.dwords; ++d) bad[d] &= whole;
  }
  for (uint64_t left = lanes & a.partial; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    for (int d = 0; d < m.dwords && a.addr[l] + 4 * d + 4 <= a.limit; ++d)
      bad[d] |= uint64_t((written_at(written, buffer, a.addr[l])[d] & 15) != 15) << l;
  }
}

// Poison of the loaded registers from the written bits of what was read.
[[gnu::noinline]] void load_poison(Wave& w, const Op& op, const Access& a, const Buffer& buffer, uint64_t lanes) {
  const MemInfo& m = op.mem;
  uint64_t bad[4];
  unwritten_lanes(m, a, buffer, lanes, bad);
  if (!(bad[0] | bad[1] | bad[2] | bad[3]) && !w.poisoned) return;
  Poison& poison = ensure_poison(w);
  for (int d = 0; d < m.dwords; ++d) {
    uint64_t& bits = poison.v[m.vdata + d];
    bits = keeps_half(m.data) ? bits | bad[d] : (bits & ~lanes) | bad[d];
  }
}

// Lanes cut by num_records: each dword on its own, those outside read as zero.
[[gnu::noinline]] void load_partial(const Access& a, int dwords, Lanes* d) {
  for (uint64_t lanes = a.partial; lanes; lanes &= lanes - 1) {
    int l = __builtin_ctzll(lanes);
    for (int i = 0; i < dwords; ++i) {
      uint64_t address = a.addr[l] + 4 * i;
      d[i].v[l] = address + 4 <= a.limit ? load4(address) : 0;
    }
  }
}

[[gnu::noinline]] void load_to_lds(Wave& w, const Op& op, uint64_t lanes, const Lanes* data, const uint64_t* bad) {
  // LDS address: M0 (all of it: LDS is larger than 64 KB) + instruction offset + lane * size (CDNA3 ISA 9.1.9, "Buffer Loads to LDS").
  uint32_t size = op.mem.bytes < 4 ? 4 : op.mem.bytes;
  uint32_t base = w.sgpr[kM0] + uint32_t(op.mem.offset);
  alignas(64) uint32_t touched[64];
  for (uint32_t& at : touched) at = base + uint32_t(__builtin_ctzll(lanes)) * size;
  for (uint64_t left = lanes; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    uint32_t at = base + uint32_t(l) * size;
    if (uint64_t(at) + size > w.cta->lds_bytes) return report_number(w, op, "bounds", "LDS address %llu lies behind the CTA's LDS", at, l);
    if (at & 3) return report_number(w, op, "misaligned", "LDS address %llu is not aligned", at, l);
    touched[l] = at;
  }
  if (size == 4) mark_lds_writes<4>(w, op, touched, data, lanes);
  if (size == 12) mark_lds_writes<12>(w, op, touched, data, lanes);
  if (size == 16) mark_lds_writes<16>(w, op, touched, data, lanes);
  for (uint64_t left = lanes; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    uint32_t at = touched[l];
    for (uint32_t d = 0; d < size / 4; ++d) {
      __builtin_memcpy(w.cta->lds + at + 4 * d, &data[d].v[l], 4);
      if (w.cta->lds_written) w.cta->lds_written[(at >> 2) + d] = (bad[d] >> l & 1) ? 0 : 15;
    }
  }
  w.tc->changed();
}

template <Data D>
void load(Wave& w, const Op& op) {
  Access a;
  lane_addresses(w, op, a);
  const MemInfo& m = op.mem;
  uint64_t exec = w.exec();
  if (exec == 0 || w.stop == Stop::fault) return;
  constexpr int N = D == Data::b64 ? 2 : D == Data::b96 ? 3 : D == Data::b128 ? 4 : 1;
  bool to_lds = m.lds;
  Lanes* dst = to_lds ? nullptr : w.vgpr + m.vdata;
  Lanes* room = w.tc->scratch;
  if (a.active != exec || to_lds) [[unlikely]] {
    for (int i = 0; i < N; ++i) fill(room[i], 0);
    if (!to_lds) {
      if (keeps_half(D)) copy(room[4], *dst);
      for (int i = 0; i < N; ++i) blend(dst[i], room[i], exec & ~a.active);
      if (w.poisoned)
        for (int i = 0; i < N; ++i) w.poison->v[m.vdata + i] &= ~(exec & ~a.active);
    }
    if (a.active == 0 && !to_lds) return;
  }
  uint64_t lds_bad[4] = {};
  if (a.active == 0) return to_lds ? load_to_lds(w, op, exec, room, lds_bad) : void();
  bool ok = each_buffer(w, op, a, [&](Buffer& buffer, uint64_t lanes) {
    if (lanes == ~0ull && !a.partial && !to_lds) [[likely]] {
      gather<D>(a.addr, dst);
    } else {
      Lanes* t = to_lds ? room : room + 8;
      if (lanes != a.active || a.partial) {
        // Lanes of other buffers or behind num_records must not be touched by this pass.
        Access b = a;
        b.active = lanes & ~a.partial;
        if (b.active) {
          settle(b);
          Lanes* g = room + 16;
          if (keeps_half(D)) copy(g[0], *dst);
          gather<D>(b.addr, g);
          for (int i = 0; i < N; ++i) blend(t[i], g[i], b.active);
        }
        if (a.partial & lanes) load_partial(a, N, t);
      } else {
        if (keeps_half(D)) copy(t[0], *dst);
        gather<D>(a.addr, t);
      }
      if (!to_lds)
        for (int i = 0; i < N; ++i) blend(dst[i], t[i], lanes);
    }
    if (buffer.written.load(std::memory_order_relaxed) || w.poisoned) [[unlikely]] {
      if (!to_lds) {
        load_poison(w, op, a, buffer, lanes);
      } else {
        uint64_t bad[4];
        unwritten_lanes(m, a, buffer, lanes, bad);
        for (int i = 0; i < N; ++i) lds_bad[i] |= bad[i];
      }
    }
    if (w.tc->observe) [[unlikely]] observe_bytes(w, buffer, op, false, uint64_t(__builtin_popcountll(lanes)) * m.bytes);
    if (w.tc->handoff) [[unlikely]] {
      handoff_access(w, op, a.addr, lanes, false);
      if (!to_lds) handoff_delay(w, op, a.addr, lanes, dst);
    }
  });
  if (!ok) return;
  if (to_lds) return load_to_lds(w, op, exec, room, lds_bad);
  int first = __builtin_ctzll(a.active);
  w.last_load = &op;
  w.last_address = a.addr[first];
  w.last_value = dst[0].v[first] | (N > 1 ? uint64_t(dst[N > 1 ? 1 : 0].v[first]) << 32 : 0);
}

// Written bits of a store; true to go on.
[[gnu::noinline]] bool store_written(Wave& w, const Op& op, const Access& a, Buffer& buffer, uint64_t lanes) {
  const MemInfo& m = op.mem;
  uint64_t bad[4] = {};
  uint64_t any = 0;
  if (w.poisoned)
    for (int d = 0; d < m.dwords; ++d) any |= bad[d] = w.poison->v[m.vdata + d] & lanes;
  if (any && buffer.output) {
    int lane = __builtin_ctzll(any);
    report(w, op, "poison", "a never-written value is stored to an output", lane, a.addr[lane]);
    return false;
  }
  uint8_t* written = buffer.written.load(std::memory_order_acquire);
  if (!written) {
    if (!any) return true;
    written = w.tc->map->ensure_written(buffer);
  }
  for (uint64_t left = lanes; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    uint8_t* at = written_at(written, buffer, a.addr[l]);
    if (m.bytes >= 4) {
      for (int d = 0; d < m.dwords; ++d) {
        if ((a.partial >> l & 1) && a.addr[l] + 4 * d + 4 > a.limit) break;
        at[d] = (bad[d] >> l & 1) ? 0 : 15;
      }
    } else {
      uint8_t bits = uint8_t(((1 << m.bytes) - 1) << (a.addr[l] & 3));
      if (bad[0] >> l & 1) __atomic_fetch_and(at, uint8_t(~bits), __ATOMIC_RELAXED);
      else __atomic_fetch_or(at, bits, __ATOMIC_RELAXED);
    }
  }
  return true;
}

// What the lanes' bytes were before a store, to tell whether it changed any.
struct Before {
  uint8_t bytes[64][16];
  void take(const uint64_t* addr, uint64_t lanes, uint32_t size) {
    for (; lanes; lanes &= lanes - 1) {
      int l = __builtin_ctzll(lanes);
      __builtin_memcpy(bytes[l], reinterpret_cast<const void*>(addr[l]), size);
    }
  }
  bool differs(const uint64_t* addr, uint64_t lanes, uint32_t size) const {
    for (; lanes; lanes &= lanes - 1) {
      int l = __builtin_ctzll(lanes);
      if (__builtin_memcmp(bytes[l], reinterpret_cast<const void*>(addr[l]), size) != 0) return true;
    }
    return false;
  }
};

template <Data D>
void store(Wave& w, const Op& op) {
  Access a;
  lane_addresses(w, op, a);
  if (a.active == 0 || w.stop == Stop::fault) return;
  const MemInfo& m = op.mem;
  const Lanes* src = w.vgpr + m.vdata;
  bool changed = !w.tc->careful;
  bool ok = each_buffer(w, op, a, [&](Buffer& buffer, uint64_t lanes) {
    if (buffer.read_only) [[unlikely]]
      return report(w, op, "bounds", "store to read-only memory", __builtin_ctzll(lanes), a.addr[__builtin_ctzll(lanes)]);
    if (w.tc->handoff) [[unlikely]] {
      handoff_access(w, op, a.addr, lanes, true);
      if (w.stop == Stop::fault) return;
    }
    if (buffer.written.load(std::memory_order_relaxed) || w.poisoned) [[unlikely]]
      if (!store_written(w, op, a, buffer, lanes)) return;
    uint64_t whole = lanes & ~a.partial;
    changed |= whole != lanes;
    if (!changed) [[unlikely]] {
      Before before;
      before.take(a.addr, whole, m.bytes);
      scatter<D>(a.addr, src, whole);
      changed = before.differs(a.addr, whole, m.bytes);
    } else {
      scatter<D>(a.addr, src, whole);
    }
    for (uint64_t left = lanes & a.partial; left; left &= left - 1) {
      int l = __builtin_ctzll(left);
      for (int i = 0; i < m.dwords && a.addr[l] + 4 * i + 4 <= a.limit; ++i) store4(a.addr[l] + 4 * i, src[i].v[l]);
    }
    if (w.tc->observe) [[unlikely]] observe_bytes(w, buffer, op, true, uint64_t(__builtin_popcountll(lanes)) * m.bytes);
  });
  if (ok && changed) w.tc->changed();
}

// Scratch: each lane's own memory, spilled registers mostly. Never-written scratch is not reported, but poison survives a spill.
bool scratch_address(Wave& w, const Op& op, uint32_t* off) {
  const MemInfo& m = op.mem;
  uint32_t base = uint32_t(m.offset) + (m.saddr == kNoReg ? 0 : w.sgpr[m.saddr]);
  uint32_t limit = scratch_bytes(w), alignment = m.bytes < 4 ? m.bytes : 4;
  for (int l = 0; l < 64; ++l) {
    off[l] = base + (m.vaddr == kNoReg ? 0 : w.vgpr[m.vaddr].v[l]);
    if ((w.exec() >> l & 1) && uint64_t(off[l]) + m.bytes > limit) {
      report_number(w, op, "bounds", "scratch offset %llu lies behind the lane's scratch memory", off[l], l);
      return false;
    }
    if ((w.exec() >> l & 1) && (off[l] & (alignment - 1))) {
      report_number(w, op, "misaligned", "scratch offset %llu is not aligned", off[l], l);
      return false;
    }
    off[l] = (w.exec() >> l & 1) ? off[l] : 0;
  }
  return true;
}

template <Data D>
void scratch_load(Wave& w, const Op& op) {
  alignas(64) uint32_t off[64];
  if (w.exec() == 0 || !scratch_address(w, op, off)) return;
  const MemInfo& m = op.mem;
  uint32_t size = scratch_bytes(w);
  alignas(64) uint64_t addr[64];
  for (int l = 0; l < 64; ++l) addr[l] = reinterpret_cast<uint64_t>(w.scratch_mem) + uint64_t(l) * size + off[l];
  Lanes* t = w.tc->scratch;
  if (keeps_half(D)) copy(t[0], w.vgpr[m.vdata]);
  gather<D>(addr, t);
  for (int i = 0; i < m.dwords; ++i) blend(w.vgpr[m.vdata + i], t[i], w.exec());
  if (w.scratch_poison || w.poisoned) {
    Poison& poison = ensure_poison(w);
    for (int i = 0; i < m.dwords; ++i)
      for (int l = 0; l < 64; ++l) {
        if (!(w.exec() >> l & 1)) continue;
        bool bad = w.scratch_poison && w.scratch_poison[(uint64_t(l) * size + off[l]) / 4 + i];
        poison.v[m.vdata + i] = (poison.v[m.vdata + i] & ~(1ull << l)) | uint64_t(bad) << l;
      }
  }
}

template <Data D>
void scratch_store(Wave& w, const Op& op) {
  alignas(64) uint32_t off[64];
  if (w.exec() == 0 || !scratch_address(w, op, off)) return;
  const MemInfo& m = op.mem;
  uint32_t size = scratch_bytes(w);
  alignas(64) uint64_t addr[64];
  for (int l = 0; l < 64; ++l) addr[l] = reinterpret_cast<uint64_t>(w.scratch_mem) + uint64_t(l) * size + off[l];
  // A loop counter may live here alone: a change like any other, or the loop would look stuck.
  Before before;
  before.take(addr, w.exec(), m.bytes);
  scatter<D>(addr, w.vgpr + m.vdata, w.exec());
  if (before.differs(addr, w.exec(), m.bytes)) w.tc->changed();
  if (!w.poisoned && !w.scratch_poison) return;
  if (!w.scratch_poison) w.scratch_poison = new_scratch_poison(w);
  for (int i = 0; i < m.dwords; ++i)
    for (int l = 0; l < 64; ++l)
      if (w.exec() >> l & 1)
        w.scratch_poison[(uint64_t(l) * size + off[l]) / 4 + i] = w.poisoned && (w.poison->v[m.vdata + i] >> l & 1);
}

#define BOTH(SUFFIX, D)                                                         \
  {"load_" SUFFIX, load<Data::D>}, {"scratch_load_" SUFFIX, scratch_load<Data::D>}
#define STORES(SUFFIX, D)                                                       \
  {"store_" SUFFIX, store<Data::D>}, {"scratch_store_" SUFFIX, scratch_store<Data::D>}

const HandlerEntry kMemory[] = {
    BOTH("u8", u8), BOTH("i8", i8), BOTH("u16", u16), BOTH("i16", i16), BOTH("u8_d16", u8_d16),
    BOTH("u8_d16_hi", u8_d16_hi), BOTH("i8_d16", i8_d16), BOTH("i8_d16_hi", i8_d16_hi), BOTH("b16_d16", b16_d16),
    BOTH("b16_d16_hi", b16_d16_hi), BOTH("b32", b32), BOTH("b64", b64), BOTH("b96", b96), BOTH("b128", b128),
    STORES("u8", u8), STORES("u16", u16), STORES("u8_d16_hi", u8_d16_hi), STORES("b16_d16_hi", b16_d16_hi),
    STORES("b32", b32), STORES("b64", b64), STORES("b96", b96), STORES("b128", b128),
};

}  // namespace

std::span<const HandlerEntry> memory_handlers() { return kMemory; }

}  // namespace monoc::sim::MONOC_SIM_ISA
