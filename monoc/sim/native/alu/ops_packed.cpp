// VOP3P: packed f32, f16 and i16, and the mixed-precision fma. op_sel picks the half (packed f32: the dword) that the low result
// takes from each source, op_sel_hi the one of the high result; neg_lo and neg_hi negate them.
#include "float_ops.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

struct Pick {
  const u32* word;
  u32 shift;
  u32 flip;
};

// Packed f32: source n for the low (half = 0) or high result.
Pick pick32(const Lanes* const* s, const AluMods& m, int n, int half) {
  const u32 sel = (half ? m.op_sel_hi : m.op_sel) >> n & 1u;
  const u32 neg = (half ? m.neg_hi : m.neg_lo) >> n & 1u;
  return {s[n][sel].v, 0, neg << 31};
}

Pick pick16(const Lanes* const* s, const AluMods& m, int n, int half) {
  const u32 sel = (half ? m.op_sel_hi : m.op_sel) >> n & 1u;
  const u32 neg = (half ? m.neg_hi : m.neg_lo) >> n & 1u;
  return {s[n]->v, 16 * sel, neg << 15};
}

template <bool negates>
f32 get32(const Pick& p, int i) { return bits<f32>(negates ? p.word[i] ^ p.flip : p.word[i]); }
f32 limit01(f32 x, bool clamp) {
  const f32 low = x > 0.0f ? x : 0.0f;  // also NaN
  return clamp ? (low > 1.0f ? 1.0f : low) : x;
}

template <bool clamp, bool negates, class F>
[[gnu::always_inline]] inline void packed_f32(Lanes* d, const Lanes* const* s, const AluMods& m, int count, F f) {
  const Pick a0 = pick32(s, m, 0, 0), a1 = pick32(s, m, 0, 1), b0 = pick32(s, m, 1, 0), b1 = pick32(s, m, 1, 1);
  const Pick c0 = count > 2 ? pick32(s, m, 2, 0) : b0, c1 = count > 2 ? pick32(s, m, 2, 1) : b1;
  u32 *lo = d[0].v, *hi = d[1].v;
  MONOC_LANES {
    const f32 x = canon(f(get32<negates>(a0, i), get32<negates>(b0, i), get32<negates>(c0, i)));
    const f32 y = canon(f(get32<negates>(a1, i), get32<negates>(b1, i), get32<negates>(c1, i)));
    lo[i] = bits<u32>(limit01(x, clamp));
    hi[i] = bits<u32>(limit01(y, clamp));
  }
}

template <int count, auto F>
[[gnu::flatten]] void pk_f32(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const AluMods& m = *ctx.mods;
  if (m.clamp) {
    packed_f32<true, true>(d, s, m, count, F);
  } else if (m.neg_lo | m.neg_hi) {
    packed_f32<false, true>(d, s, m, count, F);
  } else {
    packed_f32<false, false>(d, s, m, count, F);
  }
}

// v_pk_fmac_f16: the destination is the addend (VOP2: no modifiers).
template <auto F>
[[gnu::flatten]] void pk16_acc(Lanes* d, const Lanes* const* s, AluCtx&) {
  const u32 *a = s[0]->v, *b = s[1]->v;
  u32* r = d->v;
  MONOC_LANES {
    const u32 lo = F(a[i] & 0xffffu, b[i] & 0xffffu, r[i] & 0xffffu, false);
    const u32 hi = F(a[i] >> 16, b[i] >> 16, r[i] >> 16, false);
    r[i] = (lo & 0xffffu) | hi << 16;
  }
}

// Low dword: src0 by op_sel[0]; high dword: src1 by op_sel[1].
void pk_mov(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const u32* a = s[0][ctx.mods->op_sel & 1u].v;
  const u32* b = s[1][ctx.mods->op_sel >> 1 & 1u].v;
  u32 *lo = d[0].v, *hi = d[1].v;
  MONOC_LANES {
    const u32 x = a[i], y = b[i];
    lo[i] = x;
    hi[i] = y;
  }
}

// F(a, b, c, clamp) on half-words as u32.
template <int count, auto F>
[[gnu::flatten]] void pk16(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const AluMods& m = *ctx.mods;
  const Pick a0 = pick16(s, m, 0, 0), a1 = pick16(s, m, 0, 1);
  const Pick b0 = pick16(s, m, 1, 0), b1 = pick16(s, m, 1, 1);
  const Pick c0 = count > 2 ? pick16(s, m, 2, 0) : b0, c1 = count > 2 ? pick16(s, m, 2, 1) : b1;
  const bool clamp = m.clamp;
  u32* r = d->v;
  MONOC_LANES {
    const u32 lo = F((a0.word[i] >> a0.shift & 0xffffu) ^ a0.flip, (b0.word[i] >> b0.shift & 0xffffu) ^ b0.flip,
                     (c0.word[i] >> c0.shift & 0xffffu) ^ c0.flip, clamp);
    const u32 hi = F((a1.word[i] >> a1.shift & 0xffffu) ^ a1.flip, (b1.word[i] >> b1.shift & 0xffffu) ^ b1.flip,
                     (c1.word[i] >> c1.shift & 0xffffu) ^ c1.flip, clamp);
    r[i] = (lo & 0xffffu) | hi << 16;
  }
}

i32 sx(u32 x) { return static_cast<i16>(x); }
u32 sat_u16(i64 x, bool clamp) { return static_cast<u32>(!clamp ? x : x < 0 ? 0 : x > 65535 ? 65535 : x); }
u32 sat_i16(i64 x, bool clamp) { return static_cast<u32>(!clamp ? x : x < -32768 ? -32768 : x > 32767 ? 32767 : x); }
u32 half(f32 x, bool clamp) { return half_result(limit01(x, clamp)).v; }
u32 half(f64 x, bool clamp) { return half(f64_to_f32_odd(x), clamp); }

bool signalling_half(u32 x) { return (x & 0x7fffu) - 0x7c01u < 0x1ffu; }

constexpr auto add_u = [](u32 a, u32 b, u32, bool c) -> u32 { return sat_u16(i64{a} + b, c); };
constexpr auto sub_u = [](u32 a, u32 b, u32, bool c) -> u32 { return sat_u16(i64{a} - b, c); };
constexpr auto add_i = [](u32 a, u32 b, u32, bool c) -> u32 { return sat_i16(i64{sx(a)} + sx(b), c); };
constexpr auto sub_i = [](u32 a, u32 b, u32, bool c) -> u32 { return sat_i16(i64{sx(a)} - sx(b), c); };
constexpr auto mad_u = [](u32 a, u32 b, u32 d, bool c) -> u32 { return sat_u16(i64{a} * b + d, c); };
constexpr auto mad_i = [](u32 a, u32 b, u32 d, bool c) -> u32 { return sat_i16(i64{sx(a)} * sx(b) + sx(d), c); };
constexpr auto mul_lo = [](u32 a, u32 b, u32, bool) -> u32 { return a * b; };
constexpr auto shl = [](u32 a, u32 b, u32, bool) -> u32 { return b << (a & 15u); };
constexpr auto lshr = [](u32 a, u32 b, u32, bool) -> u32 { return b >> (a & 15u); };
constexpr auto ashr = [](u32 a, u32 b, u32, bool) -> u32 { return static_cast<u32>(sx(b) >> (a & 15u)); };
constexpr auto min_u = [](u32 a, u32 b, u32, bool) -> u32 { return a < b ? a : b; };
constexpr auto max_u = [](u32 a, u32 b, u32, bool) -> u32 { return a < b ? b : a; };
constexpr auto min_i = [](u32 a, u32 b, u32, bool) -> u32 { return sx(a) < sx(b) ? a : b; };
constexpr auto max_i = [](u32 a, u32 b, u32, bool) -> u32 { return sx(a) < sx(b) ? b : a; };
constexpr auto add_h = [](u32 a, u32 b, u32, bool c) -> u32 { return half(half_to_f32(a) + half_to_f32(b), c); };
constexpr auto mul_h = [](u32 a, u32 b, u32, bool c) -> u32 { return half(half_to_f32(a) * half_to_f32(b), c); };
constexpr auto fma_h = [](u32 a, u32 b, u32 d, bool c) -> u32 {
  return half(f64{half_to_f32(a)} * f64{half_to_f32(b)} + f64{half_to_f32(d)}, c);
};
constexpr auto max_h = [](u32 a, u32 b, u32, bool c) -> u32 {
  const u32 r = half(max_num(half_to_f32(a), half_to_f32(b)), c);
  return signalling_half(a) | signalling_half(b) ? 0x7e00u : r;
};
constexpr auto min_h = [](u32 a, u32 b, u32, bool c) -> u32 {
  const u32 r = half(min_num(half_to_f32(a), half_to_f32(b)), c);
  return signalling_half(a) | signalling_half(b) ? 0x7e00u : r;
};
constexpr auto max3_h = [](u32 a, u32 b, u32 d, bool c) -> u32 {
  return half(maximum(maximum(half_to_f32(a), half_to_f32(b)), half_to_f32(d)), c);
};
constexpr auto min3_h = [](u32 a, u32 b, u32 d, bool c) -> u32 {
  return half(minimum(minimum(half_to_f32(a), half_to_f32(b)), half_to_f32(d)), c);
};

constexpr auto add_f = [](f32 a, f32 b, f32) -> f32 { return a + b; };
constexpr auto mul_f = [](f32 a, f32 b, f32) -> f32 { return a * b; };
constexpr auto fma_f = [](f32 a, f32 b, f32 c) -> f32 { return fused(a, b, c); };

// Source n of v_fma_mix_*: f16 (op_sel_hi) of the half op_sel picks, else f32; neg_hi is abs, neg_lo is neg.
void mix_source(const Lanes* source, const AluMods& m, int n, f32* out) {
  const u32* w = source->v;
  const u32 shift = 16 * (m.op_sel >> n & 1u);
  const u32 keep = m.neg_hi >> n & 1u ? 0x7fffffffu : ~0u;
  const u32 flip = (m.neg_lo >> n & 1u) << 31;
  if (m.op_sel_hi >> n & 1u) {
    MONOC_LANES out[i] = bits<f32>((bits<u32>(half_to_f32(w[i] >> shift & 0xffffu)) & keep) ^ flip);
  } else {
    MONOC_LANES out[i] = bits<f32>((w[i] & keep) ^ flip);
  }
}

enum class MixTo { f32, low, high };

// The f16 forms round the f32 result of the fma (CDNA3 ISA document: D.f16 = f32_to_f16(fma)).
template <MixTo to>
void fma_mix(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  alignas(64) f32 a[64], b[64], c[64];
  mix_source(s[0], *ctx.mods, 0, a);
  mix_source(s[1], *ctx.mods, 1, b);
  mix_source(s[2], *ctx.mods, 2, c);
  const bool clamp = ctx.mods->clamp;
  u32* r = d->v;
  MONOC_LANES {
    const f32 x = limit01(canon(fused(a[i], b[i], c[i])), clamp);
    if constexpr (to == MixTo::f32) {
      r[i] = bits<u32>(x);
    } else {
      const u32 h = f32_to_half(x);
      r[i] = to == MixTo::low ? (r[i] & 0xffff0000u) | h : (r[i] & 0xffffu) | h << 16;
    }
  }
}

constexpr AluOp row(const char* name, AluFn fn, Kind kind, int count, u32 flags = 0) {
  AluOp r = custom(name, fn, kind, {kind, kind, kind}, flags | kPacked);
  r.nsrc = static_cast<u8>(count);
  if (count == 2) {
    r.src[2] = Kind::none;
    r.src_dwords[2] = 0;
  }
  return r;
}

// `mix` sources are dwords that may hold a half: constants are f32 (or f16 in the low half, with op_sel_hi).
constexpr AluOp mix(const char* name, AluFn fn, Kind dst, u32 flags) {
  return custom(name, fn, dst, {Kind::f32, Kind::f32, Kind::f32}, flags | kPacked | kOpSelHiZero);
}

constexpr AluOp kTable[] = {
    row("v_pk_add_f32", pk_f32<2, add_f>, Kind::pk_f32, 2),
    row("v_pk_mul_f32", pk_f32<2, mul_f>, Kind::pk_f32, 2),
    row("v_pk_fma_f32", pk_f32<3, fma_f>, Kind::pk_f32, 3),
    row("v_pk_mov_b32", pk_mov, Kind::pk_b32, 2),
    row("v_pk_add_f16", pk16<2, add_h>, Kind::pk_f16, 2),
    row("v_pk_mul_f16", pk16<2, mul_h>, Kind::pk_f16, 2),
    row("v_pk_fma_f16", pk16<3, fma_h>, Kind::pk_f16, 3),
    custom("v_pk_fmac_f16", pk16_acc<fma_h>, Kind::pk_f16, {Kind::pk_f16, Kind::pk_f16}, kReadsDst),
    row("v_pk_max_f16", pk16<2, max_h>, Kind::pk_f16, 2),
    row("v_pk_min_f16", pk16<2, min_h>, Kind::pk_f16, 2),
    row("v_pk_maximum3_f16", pk16<3, max3_h>, Kind::pk_f16, 3),
    row("v_pk_minimum3_f16", pk16<3, min3_h>, Kind::pk_f16, 3),
    row("v_pk_add_u16", pk16<2, add_u>, Kind::pk_b16, 2),
    row("v_pk_sub_u16", pk16<2, sub_u>, Kind::pk_b16, 2),
    row("v_pk_add_i16", pk16<2, add_i>, Kind::pk_b16, 2),
    row("v_pk_sub_i16", pk16<2, sub_i>, Kind::pk_b16, 2),
    row("v_pk_mad_u16", pk16<3, mad_u>, Kind::pk_b16, 3),
    row("v_pk_mad_i16", pk16<3, mad_i>, Kind::pk_b16, 3),
    row("v_pk_mul_lo_u16", pk16<2, mul_lo>, Kind::pk_b16, 2),
    row("v_pk_lshlrev_b16", pk16<2, shl>, Kind::pk_b16, 2),
    row("v_pk_lshrrev_b16", pk16<2, lshr>, Kind::pk_b16, 2),
    row("v_pk_ashrrev_i16", pk16<2, ashr>, Kind::pk_b16, 2),
    row("v_pk_min_u16", pk16<2, min_u>, Kind::pk_b16, 2),
    row("v_pk_max_u16", pk16<2, max_u>, Kind::pk_b16, 2),
    row("v_pk_min_i16", pk16<2, min_i>, Kind::pk_b16, 2),
    row("v_pk_max_i16", pk16<2, max_i>, Kind::pk_b16, 2),
    mix("v_fma_mix_f32", fma_mix<MixTo::f32>, Kind::f32, 0),
    mix("v_fma_mixlo_f16", fma_mix<MixTo::low>, Kind::f16, kReadsDst),
    mix("v_fma_mixhi_f16", fma_mix<MixTo::high>, Kind::f16, kReadsDst),
    mix("v_mad_mix_f32", fma_mix<MixTo::f32>, Kind::f32, 0),
    mix("v_mad_mixlo_f16", fma_mix<MixTo::low>, Kind::f16, kReadsDst),
    mix("v_mad_mixhi_f16", fma_mix<MixTo::high>, Kind::f16, kReadsDst),
};

}  // namespace

std::span<const AluOp> table_packed() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
