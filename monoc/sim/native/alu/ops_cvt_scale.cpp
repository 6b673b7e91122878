// gfx950 conversions with a block scale (v_cvt_scalef32_*). Only the exponent field e of the f32 scale counts: the scale is
// 2^(e - 127), NaN for e = 255 (CDNA4 ISA document). Narrow to wide multiplies by it, wide to narrow divides by it; results are
// rounded once. fp8 and bf8 overflow to NaN / infinity (clamp with MODE.FP16_OVFL), fp6, bf6 and fp4 clamp.
//
// op_sel: bits 0 and 1 pick the byte (fp8, bf8, fp4) and bit 0 the half-word (packed fp8, bf8) of a narrow source; bit 3
// picks the half and bits 3:2 the byte of a narrow or 16-bit destination (LLVM, VOP3Instructions.td).
#include "byte_table.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

f32 scale_up(u32 scale) {
  const u32 e = scale & 0x7f800000u;
  return bits<f32>(e == 0x7f800000u ? kNan32 : e == 0 ? 0x00400000u : e);
}
f32 scale_down(u32 scale) {
  const u32 e = scale & 0x7f800000u;
  const u32 inverse = 0x7f000000u - e;
  return bits<f32>(e == 0x7f800000u ? kNan32 : inverse == 0 ? 0x00400000u : inverse);
}

struct AsF32 {
  static constexpr Kind packed = Kind::pk_f32;
  static constexpr int width = 2;  // dwords of a pair
};
struct AsF16 {
  static constexpr Kind packed = Kind::pk_f16;
  static constexpr int width = 1;
  static f32 load(u32 h) { return half_to_f32(h); }
  static u32 store(f32 x, bool saturate) { return f32_to_half(x, saturate); }
};
struct AsBf16 {
  static constexpr Kind packed = Kind::pk_bf16;
  static constexpr int width = 1;
  static f32 load(u32 h) { return bf16_to_f32(h & 0xffffu); }
  static u32 store(f32 x, bool) { return f32_to_bf16(x); }
};

// Element j of a value of 1 or 2 dwords (a pair of f32, f16 or bf16).
template <class Wide>
f32 element(const Lanes* value, int i, int j) {
  if constexpr (Wide::width == 2) {
    return bits<f32>(value[j].v[i]);
  } else {
    return Wide::load(value->v[i] >> (16 * j) & 0xffffu);
  }
}

// One narrow value of a byte to f32, or to a half of the destination.
template <class Narrow, class Wide>
[[gnu::flatten]] void one_from(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const u32 *a = s[0]->v, *scale = s[1]->v;
  u32* r = d->v;
  const bool saturate = ctx.mode & kModeFp16Ovfl;
  const u32 from = 8 * (ctx.mods->op_sel & 3u);
  const u32 to = ctx.mods->op_sel & 8 ? 16 : 0;
  MONOC_LANES {
    const f32 x = canon(Narrow::decode(a[i] >> from & 0xffu) * scale_up(scale[i]));
    if constexpr (Wide::width == 2) {
      r[i] = bits<u32>(x);
    } else {
      r[i] = (r[i] & ~(0xffffu << to)) | Wide::store(x, saturate) << to;
    }
  }
}

// Two narrow values (`bits_each` wide) to a pair.
template <class Narrow, int bits_each, class Wide>
[[gnu::flatten]] void pair_from(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const u32 *a = s[0]->v, *scale = s[1]->v;
  u32 *lo = d[0].v, *hi = d[Wide::width - 1].v;
  const bool saturate = ctx.mode & kModeFp16Ovfl;
  const u32 from = bits_each == 8 ? 16 * (ctx.mods->op_sel & 1u) : 8 * (ctx.mods->op_sel & 3u);
#if defined(MONOC_ALU_BYTE_TABLE)
  alignas(64) u32 decoded[2][64];
  if constexpr (bits_each == 8) {
    for (int i = 0; i < 64; i += kWords) {
      const Words both = bf16_of_bytes<Narrow>(low_bytes(right(load_words(a + i), from)));
      store_words(decoded[0] + i, f32_of_low(both));
      store_words(decoded[1] + i, f32_of_high(both));
    }
  }
  constexpr bool by_table = bits_each == 8;
#else
  const u32 decoded[2][1] = {};
  constexpr bool by_table = false;
#endif
  MONOC_LANES {
    const u32 w = a[i] >> from;
    const f32 factor = scale_up(scale[i]);
    f32 first, second;
    if constexpr (by_table) {
      first = bits<f32>(decoded[0][i]);
      second = bits<f32>(decoded[1][i]);
    } else {
      first = Narrow::decode(w & ((1u << bits_each) - 1));
      second = Narrow::decode(w >> bits_each & ((1u << bits_each) - 1));
    }
    const f32 x = canon(first * factor), y = canon(second * factor);
    if constexpr (Wide::width == 2) {
      lo[i] = bits<u32>(x);
      hi[i] = bits<u32>(y);
    } else {
      lo[i] = Wide::store(x, saturate) | Wide::store(y, saturate) << 16;
    }
  }
}

template <class Narrow, int bits_each>
[[gnu::always_inline]] inline void put_pair(u32& out, f32 x, f32 y, u32 op_sel, bool saturate) {
  const u32 to = bits_each == 8 ? 2 * (op_sel & 8u) : 8 * (op_sel >> 2 & 3u);
  const u32 code = Narrow::encode(x, saturate) | Narrow::encode(y, saturate) << bits_each;
  out = (out & ~(((1u << 2 * bits_each) - 1) << to)) | code << to;
}

// Two f32 sources and a scale to two narrow values.
template <class Narrow, int bits_each>
[[gnu::flatten]] void pair_to_from_f32(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const Src<f32> a(s[0]), b(s[1]);
  const u32* scale = s[2]->v;
  u32* r = d->v;
  const bool saturate = ctx.mode & kModeFp16Ovfl;
  const u32 op_sel = ctx.mods->op_sel;
  MONOC_LANES {
    const f32 factor = scale_down(scale[i]);
    put_pair<Narrow, bits_each>(r[i], canon(a[i] * factor), canon(b[i] * factor), op_sel, saturate);
  }
}

// A packed source and a scale to two narrow values.
template <class Narrow, int bits_each, class Wide>
[[gnu::flatten]] void pair_to(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const u32* scale = s[1]->v;
  u32* r = d->v;
  const bool saturate = ctx.mode & kModeFp16Ovfl;
  const u32 op_sel = ctx.mods->op_sel;
  const Lanes* a = s[0];
  MONOC_LANES {
    const f32 factor = scale_down(scale[i]);
    const f32 x = canon(element<Wide>(a, i, 0) * factor), y = canon(element<Wide>(a, i, 1) * factor);
    put_pair<Narrow, bits_each>(r[i], x, y, op_sel, saturate);
  }
}

// Stochastic rounding of one value (f32 or the low half) to a byte.
template <class Narrow, class Wide>
[[gnu::flatten]] void byte_sr(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const u32 *seed = s[1]->v, *scale = s[2]->v;
  u32* r = d->v;
  const bool saturate = ctx.mode & kModeFp16Ovfl;
  const u32 to = 8 * (ctx.mods->op_sel >> 2 & 3u);
  const Lanes* a = s[0];
  MONOC_LANES {
    const f32 x = canon(element<Wide>(a, i, 0) * scale_down(scale[i]));
    r[i] = (r[i] & ~(0xffu << to)) | Narrow::encode_sr(x, seed[i], saturate) << to;
  }
}

// Stochastic rounding of a pair to two fp4 values; both use the same seed.
template <class Wide>
[[gnu::flatten]] void fp4_pair_sr(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const u32 *seed = s[1]->v, *scale = s[2]->v;
  u32* r = d->v;
  const u32 to = 8 * (ctx.mods->op_sel >> 2 & 3u);
  const Lanes* a = s[0];
  MONOC_LANES {
    const f32 factor = scale_down(scale[i]);
    const u32 x = Fp4::encode_sr(canon(element<Wide>(a, i, 0) * factor), seed[i], true);
    const u32 y = Fp4::encode_sr(canon(element<Wide>(a, i, 1) * factor), seed[i], true);
    r[i] = (r[i] & ~(0xffu << to)) | (x | y << 4) << to;
  }
}

// 32 six-bit values in six dwords, the first lowest, to 32 wide ones.
template <class Narrow, class Wide>
void all_from_six(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const bool saturate = ctx.mode & kModeFp16Ovfl;
  for (int i = 0; i < 64; ++i) {
    u32 in[7] = {};
    for (int q = 0; q < 6; ++q) in[q] = s[0][q].v[i];
    const f32 factor = scale_up(s[1]->v[i]);
    for (int j = 0; j < 32; ++j) {
      const int at = 6 * j;
      const u64 window = u64{in[at / 32 + 1]} << 32 | in[at / 32];
      const f32 x = canon(Narrow::decode(static_cast<u32>(window >> (at % 32)) & 0x3fu) * factor);
      if constexpr (Wide::width == 2) {
        d[j].v[i] = bits<u32>(x);
      } else {
        u32& out = d[j / 2].v[i];
        out = j % 2 ? out | Wide::store(x, saturate) << 16 : Wide::store(x, saturate);
      }
    }
  }
}

template <class Narrow, class Wide>
void all_to_six(Lanes* d, const Lanes* const* s, AluCtx&) {
  for (int i = 0; i < 64; ++i) {
    u32 out[7] = {};
    const f32 factor = scale_down(s[1]->v[i]);
    for (int j = 0; j < 32; ++j) {
      const u64 code = Narrow::encode(canon(element<Wide>(s[0] + j / 2, i, j % 2) * factor), true);
      const u64 window = code << (6 * j % 32);
      out[6 * j / 32] |= static_cast<u32>(window);
      out[6 * j / 32 + 1] |= static_cast<u32>(window >> 32);
    }
    for (int q = 0; q < 6; ++q) d[q].v[i] = out[q];
  }
}

constexpr AluOp six(const char* name, AluFn fn, int to, int from) {
  AluOp row = custom(name, fn, Kind::mat, {Kind::mat, Kind::f32});
  row.dst_dwords = static_cast<u8>(to);
  row.src_dwords[0] = static_cast<u8>(from);
  return row;
}

#define MONOC_BYTE_FORMAT(name, F)                                                                                          \
  custom("v_cvt_scalef32_f32_" name, one_from<F, AsF32>, Kind::f32, {Kind::b32, Kind::f32}),                                \
      custom("v_cvt_scalef32_f16_" name, one_from<F, AsF16>, Kind::f16, {Kind::b32, Kind::f32}, kReadsDst),                 \
      custom("v_cvt_scalef32_pk_f32_" name, pair_from<F, 8, AsF32>, Kind::pk_f32, {Kind::b32, Kind::f32}),                  \
      custom("v_cvt_scalef32_pk_f16_" name, pair_from<F, 8, AsF16>, Kind::pk_f16, {Kind::b32, Kind::f32}),                  \
      custom("v_cvt_scalef32_pk_bf16_" name, pair_from<F, 8, AsBf16>, Kind::pk_bf16, {Kind::b32, Kind::f32}),               \
      custom("v_cvt_scalef32_pk_" name "_f32", pair_to_from_f32<F, 8>, Kind::b32, {Kind::f32, Kind::f32, Kind::f32},        \
             kReadsDst),                                                                                                    \
      custom("v_cvt_scalef32_pk_" name "_f16", pair_to<F, 8, AsF16>, Kind::b32, {Kind::pk_f16, Kind::f32}, kReadsDst),      \
      custom("v_cvt_scalef32_pk_" name "_bf16", pair_to<F, 8, AsBf16>, Kind::b32, {Kind::pk_bf16, Kind::f32}, kReadsDst),   \
      custom("v_cvt_scalef32_sr_" name "_f32", byte_sr<F, AsF32>, Kind::b32, {Kind::f32, Kind::b32, Kind::f32}, kReadsDst), \
      custom("v_cvt_scalef32_sr_" name "_f16", byte_sr<F, AsF16>, Kind::b32, {Kind::f16, Kind::b32, Kind::f32}, kReadsDst), \
      custom("v_cvt_scalef32_sr_" name "_bf16", byte_sr<F, AsBf16>, Kind::b32, {Kind::bf16, Kind::b32, Kind::f32}, kReadsDst)

#define MONOC_SIX_BIT_FORMAT(name, F)                                                   \
  six("v_cvt_scalef32_pk32_f32_" name, all_from_six<F, AsF32>, 32, 6),                  \
      six("v_cvt_scalef32_pk32_f16_" name, all_from_six<F, AsF16>, 16, 6),              \
      six("v_cvt_scalef32_pk32_bf16_" name, all_from_six<F, AsBf16>, 16, 6),            \
      six("v_cvt_scalef32_pk32_" name "_f16", all_to_six<F, AsF16>, 6, 16),             \
      six("v_cvt_scalef32_pk32_" name "_bf16", all_to_six<F, AsBf16>, 6, 16)

constexpr AluOp kTable[] = {
    MONOC_BYTE_FORMAT("fp8", Fp8),
    MONOC_BYTE_FORMAT("bf8", Bf8),
    MONOC_SIX_BIT_FORMAT("fp6", Fp6),
    MONOC_SIX_BIT_FORMAT("bf6", Bf6),
    custom("v_cvt_scalef32_pk_f32_fp4", pair_from<Fp4, 4, AsF32>, Kind::pk_f32, {Kind::b32, Kind::f32}),
    custom("v_cvt_scalef32_pk_f16_fp4", pair_from<Fp4, 4, AsF16>, Kind::pk_f16, {Kind::b32, Kind::f32}),
    custom("v_cvt_scalef32_pk_bf16_fp4", pair_from<Fp4, 4, AsBf16>, Kind::pk_bf16, {Kind::b32, Kind::f32}),
    custom("v_cvt_scalef32_pk_fp4_f32", pair_to_from_f32<Fp4, 4>, Kind::b32, {Kind::f32, Kind::f32, Kind::f32}, kReadsDst),
    custom("v_cvt_scalef32_pk_fp4_f16", pair_to<Fp4, 4, AsF16>, Kind::b32, {Kind::pk_f16, Kind::f32}, kReadsDst),
    custom("v_cvt_scalef32_pk_fp4_bf16", pair_to<Fp4, 4, AsBf16>, Kind::b32, {Kind::pk_bf16, Kind::f32}, kReadsDst),
    custom("v_cvt_scalef32_sr_pk_fp4_f32", fp4_pair_sr<AsF32>, Kind::b32, {Kind::pk_f32, Kind::b32, Kind::f32}, kReadsDst),
    custom("v_cvt_scalef32_sr_pk_fp4_f16", fp4_pair_sr<AsF16>, Kind::b32, {Kind::pk_f16, Kind::b32, Kind::f32}, kReadsDst),
    custom("v_cvt_scalef32_sr_pk_fp4_bf16", fp4_pair_sr<AsBf16>, Kind::b32, {Kind::pk_bf16, Kind::b32, Kind::f32}, kReadsDst),
};

}  // namespace

std::span<const AluOp> table_cvt_scale() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
