// Lane addresses of memory instructions, and which buffer they hit.
// CDNA3 ISA "Memory Buffer Load and Store Instructions" (9.1.5, range checking) and "Flat Memory Instructions".
#pragma once

#include "isa.hpp"
#include "machine.hpp"

namespace monoc::sim::MONOC_SIM_ISA {
namespace {

struct Access {
  alignas(64) uint64_t addr[64];
  uint64_t active;   // lanes that touch memory; others hold the address of one that does
  uint64_t partial;  // lanes of a raw buffer access whose first dword is inside num_records and whose last is not
  uint64_t limit;    // first byte behind num_records, for partial lanes
};

// Lanes switched off get the address of the first active one, so that vector code needs no masks.
inline void settle(Access& a) {
  if (a.active == ~0ull || a.active == 0) return;
  uint64_t first = a.addr[__builtin_ctzll(a.active)];
  for (int l = 0; l < 64; ++l) a.addr[l] = (a.active >> l & 1) ? a.addr[l] : first;
}

inline void buffer_address(Wave& w, const Op& op, Access& a) {
  const MemInfo& m = op.mem;
  const uint32_t* resource = w.sgpr + m.srsrc;
  uint64_t base = resource[0] | uint64_t(resource[1] & 0xffff) << 32;
  uint32_t records = resource[2], stride = resource[1] >> 16 & 0x3fff;
  uint32_t soffset = op.src[0].kind == Src::sgpr ? w.sgpr[op.src[0].index] : uint32_t(op.src[0].value);
  a.active = w.exec();
  a.partial = 0;
  alignas(64) uint32_t off[64];
  if (m.offen) {
    const uint32_t* v = w.vgpr[m.vaddr + (m.idxen ? 1 : 0)].v;
    for (int l = 0; l < 64; ++l) off[l] = v[l] + uint32_t(m.offset);  // wraps at 32 bits
  } else {
    for (int l = 0; l < 64; ++l) off[l] = uint32_t(m.offset);
  }
  uint64_t start = base + soffset;
  for (int l = 0; l < 64; ++l) a.addr[l] = start + off[l];
  if (stride != 0) [[unlikely]] {
    // Structured: num_records counts elements of `stride` bytes.
    if (resource[1] >> 31) return report(w, op, "unsupported", "a swizzled buffer resource");
    uint64_t out = 0;
    for (int l = 0; l < 64; ++l) {
      uint32_t index = m.idxen ? w.vgpr[m.vaddr].v[l] : 0;
      out |= uint64_t(index >= records || (m.idxen && off[l] >= stride)) << l;
      a.addr[l] += uint64_t(index) * stride;
    }
    a.active &= ~out;
    settle(a);
    return;
  }
  // Raw: a dword is out of range from num_records - soffset on; 0xffffffff is no bound.
  if (records != 0xffffffffu) {
    uint64_t limit = records > soffset ? records - soffset : 0;
    uint64_t out = 0, cut = 0;
    uint32_t first = m.bytes < 4 ? m.bytes : 4;
    for (int l = 0; l < 64; ++l) out |= uint64_t(uint64_t(off[l]) + first > limit) << l;
    if (m.bytes > 4)
      for (int l = 0; l < 64; ++l) cut |= uint64_t(uint64_t(off[l]) + m.bytes > limit) << l;
    a.active &= ~out;
    a.partial = cut & a.active;
    a.limit = start + limit;
  }
  settle(a);
}

inline void global_address(Wave& w, const Op& op, Access& a) {
  const MemInfo& m = op.mem;
  a.active = w.exec();
  a.partial = 0;
  if (m.mode == AddrMode::global_saddr) {
    uint64_t base = w.read64(m.saddr) + int64_t(m.offset);
    if (m.vaddr == kNoReg) {
      for (int l = 0; l < 64; ++l) a.addr[l] = base;
    } else {
      const uint32_t* v = w.vgpr[m.vaddr].v;
      for (int l = 0; l < 64; ++l) a.addr[l] = base + v[l];
    }
  } else {
    const uint32_t *lo = w.vgpr[m.vaddr].v, *hi = w.vgpr[m.vaddr + 1].v;
    for (int l = 0; l < 64; ++l) a.addr[l] = (lo[l] | uint64_t(hi[l]) << 32) + uint64_t(int64_t(m.offset));
  }
  settle(a);
}

inline void lane_addresses(Wave& w, const Op& op, Access& a) {
  if (op.mem.mode == AddrMode::buffer) buffer_address(w, op, a);
  else global_address(w, op, a);
}

inline void bounds_error(Wave& w, const Op& op, int lane, uint64_t address) {
  // A finding's address 0 stands for "no memory involved".
  if (address == 0) return report(w, op, "bounds", "access through a null pointer", lane);
  report(w, op, "bounds", op.mem.store ? "store outside every registered buffer" : "access outside every registered buffer",
         lane, address);
}

inline uint32_t required_alignment(const MemInfo& m) {
  return m.atomic != Atomic::none ? (m.wide ? 8 : 4) : m.bytes >= 4 ? 4 : m.bytes;
}

// Calls body(buffer, lanes) for each buffer the active lanes hit; false after a finding.
template <class Body>
inline bool each_buffer(Wave& w, const Op& op, const Access& a, Body body) {
  const MemoryMap& map = *w.tc->map;
  uint32_t bytes = op.mem.bytes;
  int64_t low = int64_t(a.addr[0]), high = int64_t(a.addr[0]);
  uint64_t all = 0;
  for (int l = 0; l < 64; ++l) {
    int64_t x = int64_t(a.addr[l]);
    low = x < low ? x : low;
    high = x > high ? x : high;
    all |= uint64_t(x);
  }
  if (all & (required_alignment(op.mem) - 1)) [[unlikely]] {
    for (int l = 0; l < 64; ++l)
      if ((a.active >> l & 1) && (a.addr[l] & (required_alignment(op.mem) - 1))) {
        report_number(w, op, "misaligned", "address is not a multiple of %llu", required_alignment(op.mem), l, a.addr[l]);
        return false;
      }
  }
  uint16_t& cached = w.tc->buffer_cache[op.index];
  if (cached < map.size()) [[likely]] {
    Buffer& buffer = map.at(cached);
    // Signed: an address with the top bit set is below every buffer.
    if (low >= int64_t(buffer.base) && uint64_t(high) + bytes <= buffer.end()) [[likely]] {
      body(buffer, a.active);
      return w.stop != Stop::fault;
    }
  }
  uint64_t left = a.active;
  while (left) {
    int first = __builtin_ctzll(left);
    int found = map.find(a.addr[first]);
    if (found < 0) {
      bounds_error(w, op, first, a.addr[first]);
      return false;
    }
    Buffer& buffer = map.at(found);
    if (buffer.rank >= 0 && buffer.rank != int(w.cta->rank)) {
      report_number(w, op, "bounds", "access to memory of rank %llu, which is not shared", uint64_t(buffer.rank), first, a.addr[first]);
      return false;
    }
    cached = uint16_t(found);
    uint64_t lanes = 0;
    for (int l = 0; l < 64; ++l) {
      if (!(left >> l & 1) || a.addr[l] < buffer.base || a.addr[l] >= buffer.end()) continue;
      uint64_t size = (a.partial >> l & 1) ? 4 : bytes;
      if (a.addr[l] + size > buffer.end()) {
        bounds_error(w, op, l, a.addr[l]);
        return false;
      }
      lanes |= 1ull << l;
    }
    body(buffer, lanes);
    if (w.stop == Stop::fault) return false;
    left &= ~lanes;
  }
  return true;
}

inline uint8_t* written_at(uint8_t* written, const Buffer& buffer, uint64_t address) {
  return written + ((address - (buffer.base & ~3ull)) >> 2);
}

}  // namespace
}  // namespace monoc::sim::MONOC_SIM_ISA
