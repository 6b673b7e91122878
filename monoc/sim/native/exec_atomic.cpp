// Atomics on global memory and LDS: real host atomics, lanes in ascending order.
// CDNA3 ISA, opcode tables of FLAT / MUBUF / DS atomics.
#include "address.hpp"
#include "lds_marks.hpp"

namespace monoc::sim::MONOC_SIM_ISA {
namespace {

inline float as_f32(uint32_t v) { return __builtin_bit_cast(float, v); }
inline uint32_t bits(float v) { return __builtin_bit_cast(uint32_t, v); }
inline double as_f64(uint64_t v) { return __builtin_bit_cast(double, v); }
inline uint64_t bits64(double v) { return __builtin_bit_cast(uint64_t, v); }

// Half-word floats go through f32. The f32 sum of two f16 values is exact or so far from a rounding boundary of f16 that
// rounding twice is rounding once (24 >= 2 * 11 + 2 bits); the same holds for bf16 (24 >= 2 * 8 + 2).
inline float f16_to_f32(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
  if (exponent == 31) return as_f32(sign | 0x7f800000 | mantissa << 13);
  if (exponent == 0) {
    float magnitude = float(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return as_f32(sign | (exponent + 112) << 23 | mantissa << 13);
}
inline uint16_t f32_to_f16(float f) {
  uint32_t x = bits(f), sign = x >> 16 & 0x8000, magnitude = x & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // denormal or zero: round at 2^-24
    float scaled = as_f32(magnitude) * 0x1p24f;
    uint32_t whole = uint32_t(scaled);
    float rest = scaled - float(whole);
    whole += rest > 0.5f || (rest == 0.5f && (whole & 1));
    return uint16_t(sign | whole);
  }
  uint32_t rounded = magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1);
  return uint16_t(sign | rounded >> 13);
}
inline float bf16_to_f32(uint16_t h) { return as_f32(uint32_t(h) << 16); }
inline uint16_t f32_to_bf16(float f) {
  uint32_t x = bits(f);
  if ((x & 0x7fffffff) > 0x7f800000) return uint16_t(x >> 16 | 0x40);
  return uint16_t((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

inline uint64_t combine(Atomic kind, bool wide, uint64_t old, uint64_t data, uint64_t compare) {
  int64_t so = wide ? int64_t(old) : int64_t(int32_t(old)), sd = wide ? int64_t(data) : int64_t(int32_t(data));
  switch (kind) {
    case Atomic::swap: return data;
    case Atomic::cmpswap: return old == compare ? data : old;
    case Atomic::add: return old + data;
    case Atomic::sub: return old - data;
    case Atomic::rsub: return data - old;
    case Atomic::smin: return so < sd ? old : data;
    case Atomic::umin: return old < data ? old : data;
    case Atomic::smax: return so > sd ? old : data;
    case Atomic::umax: return old > data ? old : data;
    case Atomic::and_: return old & data;
    case Atomic::or_: return old | data;
    case Atomic::xor_: return old ^ data;
    case Atomic::inc: return old >= data ? 0 : old + 1;
    case Atomic::dec: return old == 0 || old > data ? data : old - 1;
    case Atomic::mskor: return (old & ~data) | compare;
    case Atomic::add_f32: return bits(as_f32(uint32_t(old)) + as_f32(uint32_t(data)));
    case Atomic::min_f32: return bits(__builtin_fminf(as_f32(uint32_t(old)), as_f32(uint32_t(data))));
    case Atomic::max_f32: return bits(__builtin_fmaxf(as_f32(uint32_t(old)), as_f32(uint32_t(data))));
    case Atomic::add_f64: return bits64(as_f64(old) + as_f64(data));
    case Atomic::min_f64: return bits64(__builtin_fmin(as_f64(old), as_f64(data)));
    case Atomic::max_f64: return bits64(__builtin_fmax(as_f64(old), as_f64(data)));
    case Atomic::pk_add_f16:
      return uint32_t(f32_to_f16(f16_to_f32(uint16_t(old)) + f16_to_f32(uint16_t(data)))) |
             uint32_t(f32_to_f16(f16_to_f32(uint16_t(old >> 16)) + f16_to_f32(uint16_t(data >> 16)))) << 16;
    case Atomic::pk_add_bf16:
      return uint32_t(f32_to_bf16(bf16_to_f32(uint16_t(old)) + bf16_to_f32(uint16_t(data)))) |
             uint32_t(f32_to_bf16(bf16_to_f32(uint16_t(old >> 16)) + bf16_to_f32(uint16_t(data >> 16)))) << 16;
    default: return old;
  }
}

template <class T>
inline T update(T* at, Atomic kind, uint64_t data, uint64_t compare, bool& changed) {
  T old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  for (;;) {
    T next = T(combine(kind, sizeof(T) == 8, old, data, compare));
    if (__atomic_compare_exchange_n(at, &old, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
      changed |= next != old;
      return old;
    }
  }
}

inline uint64_t operand(const Lanes* v, int l, bool wide) {
  return wide ? v[0].v[l] | uint64_t(v[1].v[l]) << 32 : v[0].v[l];
}

// Data registers of the compare-and-swap of global memory: data first, then the value to compare with; it returns to vdst = op.dst.
void atomic(Wave& w, const Op& op) {
  Access a;
  lane_addresses(w, op, a);
  a.active &= ~a.partial;  // atomics are range-checked whole
  a.partial = 0;
  settle(a);
  const MemInfo& m = op.mem;
  uint64_t exec = w.exec();
  if (exec == 0 || w.stop == Stop::fault) return;
  alignas(64) Lanes old[2];
  fill(old[0], 0);
  fill(old[1], 0);
  bool changed = false;
  uint64_t unwritten = 0;
  const Lanes* data = w.vgpr + m.vdata;
  bool two = m.atomic == Atomic::cmpswap;
  bool ok = a.active == 0 || each_buffer(w, op, a, [&](Buffer& buffer, uint64_t lanes) {
    if (buffer.read_only)
      return report(w, op, "bounds", "atomic on read-only memory", __builtin_ctzll(lanes), a.addr[__builtin_ctzll(lanes)]);
    if (w.tc->handoff) {
      handoff_access(w, op, a.addr, lanes, true);
      if (w.stop == Stop::fault) return;
    }
    uint8_t* written = buffer.written.load(std::memory_order_acquire);
    for (uint64_t left = lanes; left; left &= left - 1) {
      int l = __builtin_ctzll(left);
      uint64_t value = operand(data, l, m.wide), compare = two ? operand(data + (m.wide ? 2 : 1), l, m.wide) : 0;
      uint64_t before = m.wide ? update(reinterpret_cast<uint64_t*>(a.addr[l]), m.atomic, value, compare, changed)
                               : update(reinterpret_cast<uint32_t*>(a.addr[l]), m.atomic, value, compare, changed);
      old[0].v[l] = uint32_t(before);
      old[1].v[l] = uint32_t(before >> 32);
      if (written) {
        uint8_t* at = written_at(written, buffer, a.addr[l]);
        if ((at[0] & 15) != 15 || (m.wide && (at[1] & 15) != 15)) unwritten |= 1ull << l;
        if (m.atomic == Atomic::swap) at[0] = 15, at[m.wide ? 1 : 0] = 15;
      }
    }
    if (w.tc->observe) observe_bytes(w, buffer, op, true, uint64_t(__builtin_popcountll(lanes)) * m.bytes);
  });
  if (!ok) return;
  if (changed) w.tc->changed();
  if (m.returns) {
    for (int i = 0; i < (m.wide ? 2 : 1); ++i) {
      blend(w.vgpr[op.dst + i], old[i], exec);
      if (w.poisoned || unwritten) {
        uint64_t& p = ensure_poison(w).v[op.dst + i];
        p = (p & ~exec) | unwritten;
      }
    }
    if (a.active) {
      int first = __builtin_ctzll(a.active);
      w.last_load = &op;
      w.last_address = a.addr[first];
      w.last_value = old[0].v[first] | uint64_t(old[1].v[first]) << 32;
    }
  } else if (unwritten) {
    int lane = __builtin_ctzll(unwritten);
    report(w, op, "poison", "atomic on never-written memory", lane, a.addr[lane]);
    return;
  }
}

// LDS atomics: vaddr in op.mem.vaddr, data in src[0], second data (compare) in src[1]; DS cmpst compares with data0 and stores data1.
void ds_atomic(Wave& w, const Op& op) {
  const MemInfo& m = op.mem;
  uint64_t exec = w.exec();
  if (exec == 0) return;
  bool changed = false;
  uint64_t unwritten = 0;
  alignas(64) uint32_t touched[64];
  uint32_t first = w.vgpr[m.vaddr].v[__builtin_ctzll(exec)] + uint32_t(m.offset);
  for (uint32_t& at : touched) at = first;
  alignas(64) Lanes old[2];
  fill(old[0], 0);
  fill(old[1], 0);
  const Lanes* d0 = w.vgpr + m.vdata;
  const Lanes* d1 = op.src[1].kind == Src::vgpr ? w.vgpr + op.src[1].index : d0;
  for (uint64_t left = exec; left; left &= left - 1) {
    int l = __builtin_ctzll(left);
    uint32_t at = w.vgpr[m.vaddr].v[l] + uint32_t(m.offset);
    if (uint64_t(at) + m.bytes > w.cta->lds_bytes)
      return report_number(w, op, "bounds", "LDS address %llu lies behind the CTA's LDS", at, l);
    if (at & (m.bytes - 1)) return report_number(w, op, "misaligned", "LDS address %llu is not aligned", at, l);
    touched[l] = at;
    uint64_t value = operand(d0, l, m.wide), compare = 0;
    if (m.atomic == Atomic::cmpswap) compare = value, value = operand(d1, l, m.wide);
    if (m.atomic == Atomic::mskor) compare = operand(d1, l, m.wide);
    uint64_t before = m.wide ? update(reinterpret_cast<uint64_t*>(w.cta->lds + at), m.atomic, value, compare, changed)
                             : update(reinterpret_cast<uint32_t*>(w.cta->lds + at), m.atomic, value, compare, changed);
    old[0].v[l] = uint32_t(before);
    old[1].v[l] = uint32_t(before >> 32);
    if (uint8_t* written = w.cta->lds_written) {
      written += at >> 2;
      if (written[0] != 15 || (m.wide && written[1] != 15)) unwritten |= 1ull << l;
      if (m.atomic == Atomic::swap) written[0] = 15, written[m.wide ? 1 : 0] = 15;
    }
  }
  m.wide ? mark_lds<8>(w, op, LdsMarks::atomic, touched) : mark_lds<4>(w, op, LdsMarks::atomic, touched);
  if (changed) w.tc->changed();
  if (m.returns) {
    for (int i = 0; i < (m.wide ? 2 : 1); ++i) {
      blend(w.vgpr[op.dst + i], old[i], exec);
      if (w.poisoned || unwritten) {
        uint64_t& p = ensure_poison(w).v[op.dst + i];
        p = (p & ~exec) | unwritten;
      }
    }
  } else if (unwritten) {
    report(w, op, "poison", "atomic on never-written LDS", __builtin_ctzll(unwritten));
  }
}

const HandlerEntry kAtomic[] = {{"atomic", atomic}, {"ds_atomic", ds_atomic}};

}  // namespace

std::span<const HandlerEntry> atomic_handlers() { return kAtomic; }

}  // namespace monoc::sim::MONOC_SIM_ISA
