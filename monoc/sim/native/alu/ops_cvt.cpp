// Conversions between integers and floats of all widths (those with a block scale: ops_cvt_scale.cpp).
#include "float_ops.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

// Truncation with saturation; NaN is zero. The clamp keeps the C++ conversion defined.
i32 to_i32(f32 x) {
  const f32 low = x < -2147483648.0f ? -2147483648.0f : x;
  const f32 in = low > 2147483520.0f ? 2147483520.0f : low;
  const i32 r = static_cast<i32>(x == x ? in : 0.0f);
  return x >= 2147483648.0f ? INT32_MAX : r;
}
u32 to_u32(f32 x) {
  const f32 low = x > 0.0f ? x : 0.0f;
  const f32 in = low > 4294967040.0f ? 4294967040.0f : low;
  const u32 r = static_cast<u32>(in);
  return x >= 4294967296.0f ? ~0u : r;
}
i32 to_i32(f64 x) {
  const f64 low = x < -2147483648.0 ? -2147483648.0 : x;
  const f64 in = low > 2147483647.0 ? 2147483647.0 : low;
  return static_cast<i32>(x == x ? in : 0.0);
}
u32 to_u32(f64 x) {
  const f64 low = x > 0.0 ? x : 0.0;
  return static_cast<u32>(low > 4294967295.0 ? 4294967295.0 : low);
}

i32 clamp(i32 x, i32 lo, i32 hi) { return x < lo ? lo : x > hi ? hi : x; }
u16 norm_i16(f32 x) { return static_cast<u16>(to_i32(__builtin_rintf(32767.0f * (x > 1.0f ? 1.0f : x < -1.0f ? -1.0f : x)))); }
u16 norm_u16(f32 x) { return static_cast<u16>(to_i32(__builtin_rintf(65535.0f * (x > 1.0f ? 1.0f : x > 0.0f ? x : 0.0f)))); }
u32 pair(u32 lo, u32 hi) { return (lo & 0xffffu) | hi << 16; }

template <int byte>
f32 ubyte(u32 x) { return static_cast<f32>(static_cast<i32>(x >> (8 * byte) & 0xffu)); }

// Rounds by MODE (nearest even), unlike v_cvt_u32_f32: so measured on gfx90c, the documents do not say.
u32 pk_u8(f32 x, u32 byte, u32 old) {
  const u32 shift = 8 * (byte & 3u);
  return (old & ~(0xffu << shift)) | static_cast<u32>(clamp(to_i32(__builtin_rintf(x)), 0, 255)) << shift;
}

u32 unsigned_byte(u32 half_word) { return static_cast<u32>(clamp(static_cast<i16>(half_word), 0, 255)); }

// Stochastic rounding: the seed's top bits are added below the last bit kept.
u32 bf16_sr(f32 x, u32 seed) {
  const u32 b = bits<u32>(x);
  const bool special = (b & 0x7f800000u) == 0x7f800000u;
  return special ? f32_to_bf16(x) : (b + (seed & 0xffffu)) >> 16;
}
u32 half_sr(f32 x, u32 seed) {
  const u32 b = bits<u32>(x), m = b & 0x7fffffffu;
  if (m >= 0x7f800000u) return f32_to_half(x);
  const u32 shift = m < 0x38800000u ? 126u - (m >> 23) : 13u;
  const u64 significand = (m & 0x7fffffu) | (m >> 23 ? 0x800000u : 0u);
  const u32 kept = static_cast<u32>(((significand << 16 >> (shift < 40 ? shift : 40)) + (seed & 0xffffu)) >> 16);
  const u32 r = m < 0x38800000u ? kept : (((m >> 23) - 113u) << 10) + kept;
  return (b >> 16 & 0x8000u) | (r >= 0x7c00u ? 0x7c00u : r);
}

template <class Format>
f32 from_byte(u32 x) { return Format::decode(x & 0xffu); }

template <class Format>
void pk_f32_from(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const u32* a = s[0]->v;
  u32 *lo = d[0].v, *hi = d[1].v;
  const u32 shift = ctx.mods->op_sel & 1 ? 16 : 0;
  MONOC_LANES {
    const u32 w = a[i] >> shift;
    lo[i] = bits<u32>(Format::decode(w & 0xffu));
    hi[i] = bits<u32>(Format::decode(w >> 8 & 0xffu));
  }
}

// Two results of a byte each into the half of the destination that op_sel picks.
template <class Format>
void pk_from_f32(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const Src<f32> a(s[0]), b(s[1]);
  u32* r = d->v;
  const bool saturate = ctx.mode & kModeFp16Ovfl;
  const u32 shift = ctx.mods->op_sel & 8 ? 16 : 0;
  const u32 keep = ~(0xffffu << shift);
  MONOC_LANES r[i] = (r[i] & keep) | (Format::encode(a[i], saturate) | Format::encode(b[i], saturate) << 8) << shift;
}

template <class Format>
void sr_from_f32(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const Src<f32> a(s[0]);
  const u32* seed = s[1]->v;
  u32* r = d->v;
  const bool saturate = ctx.mode & kModeFp16Ovfl;
  const u32 shift = 8 * (ctx.mods->op_sel >> 2 & 3u);
  MONOC_LANES r[i] = (r[i] & ~(0xffu << shift)) | Format::encode_sr(a[i], seed[i], saturate) << shift;
}

template <bool packed>
void half_from_f32(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const bool saturate = ctx.mode & kModeFp16Ovfl;
  const Src<f32> a(s[0]), b(s[packed ? 1 : 0]);
  u32* r = d->v;
  const bool high = !packed && ctx.mods->op_sel & 8;
  MONOC_LANES {
    const u32 x = f32_to_half(canon(a[i]), saturate);
    r[i] = packed ? x | f32_to_half(canon(b[i]), saturate) << 16 : high ? (r[i] & 0xffffu) | x << 16 : x;
  }
}

constexpr AluOp kTable[] = {
    op<[](i32 a) -> f32 { return static_cast<f32>(a); }>("v_cvt_f32_i32"),
    op<[](u32 a) -> f32 { return static_cast<f32>(a); }>("v_cvt_f32_u32"),
    op<[](f32 a) -> i32 { return to_i32(a); }>("v_cvt_i32_f32"),
    op<[](f32 a) -> u32 { return to_u32(a); }>("v_cvt_u32_f32"),
    op<[](f32 a) -> i32 { return to_i32(__builtin_floorf(a + 0.5f)); }>("v_cvt_rpi_i32_f32"),
    op<[](f32 a) -> i32 { return to_i32(__builtin_floorf(a)); }>("v_cvt_flr_i32_f32"),
    op<[](u32 a) -> f32 { return static_cast<f32>(static_cast<i32>(a << 28)) * 0x1p-32f; }>("v_cvt_off_f32_i4"),
    op<[](u32 a) -> f32 { return ubyte<0>(a); }>("v_cvt_f32_ubyte0"),
    op<[](u32 a) -> f32 { return ubyte<1>(a); }>("v_cvt_f32_ubyte1"),
    op<[](u32 a) -> f32 { return ubyte<2>(a); }>("v_cvt_f32_ubyte2"),
    op<[](u32 a) -> f32 { return ubyte<3>(a); }>("v_cvt_f32_ubyte3"),
    op<[](f32 x, u32 byte, u32 old) -> u32 { return pk_u8(x, byte, old); }>("v_cvt_pk_u8_f32"),
    op<[](f64 a) -> f32 { return canon(static_cast<f32>(a)); }>("v_cvt_f32_f64"),
    op<[](f32 a) -> f64 { return canon(f64{a}); }>("v_cvt_f64_f32"),
    op<[](i32 a) -> f64 { return a; }>("v_cvt_f64_i32"),
    op<[](u32 a) -> f64 { return a; }>("v_cvt_f64_u32"),
    op<[](f64 a) -> i32 { return to_i32(a); }>("v_cvt_i32_f64"),
    op<[](f64 a) -> u32 { return to_u32(a); }>("v_cvt_u32_f64"),
    op<[](f16 a) -> f32 { return canon(value_of(a)); }>("v_cvt_f32_f16"),
    custom("v_cvt_f16_f32", half_from_f32<false>, Kind::f16, {Kind::f32}, kReadsDst),
    op<[](u16 a) -> f16 { return to_half(static_cast<f32>(a)); }>("v_cvt_f16_u16"),
    op<[](i16 a) -> f16 { return to_half(static_cast<f32>(a)); }>("v_cvt_f16_i16"),
    op<[](f16 a) -> u16 { return static_cast<u16>(clamp(to_i32(value_of(a)), 0, 65535)); }>("v_cvt_u16_f16"),
    op<[](f16 a) -> i16 { return static_cast<i16>(clamp(to_i32(value_of(a)), -32768, 32767)); }>("v_cvt_i16_f16"),
    op<[](f16 a) -> u16 { return norm_i16(value_of(a)); }>("v_cvt_norm_i16_f16"),
    op<[](f16 a) -> u16 { return norm_u16(value_of(a)); }>("v_cvt_norm_u16_f16"),
    op<[](f16 a, f16 b) -> u32 { return pair(norm_i16(value_of(a)), norm_i16(value_of(b))); }>("v_cvt_pknorm_i16_f16"),
    op<[](f16 a, f16 b) -> u32 { return pair(norm_u16(value_of(a)), norm_u16(value_of(b))); }>("v_cvt_pknorm_u16_f16"),
    op<[](f32 a, f32 b) -> u32 { return pair(norm_i16(a), norm_i16(b)); }>("v_cvt_pknorm_i16_f32"),
    op<[](f32 a, f32 b) -> u32 { return pair(norm_u16(a), norm_u16(b)); }>("v_cvt_pknorm_u16_f32"),
    op<[](i32 a, i32 b) -> u32 {
      return pair(static_cast<u32>(clamp(a, -32768, 32767)), static_cast<u32>(clamp(b, -32768, 32767)));
    }>("v_cvt_pk_i16_i32"),
    op<[](u32 a, u32 b) -> u32 { return pair(a < 65535u ? a : 65535u, b < 65535u ? b : 65535u); }>("v_cvt_pk_u16_u32"),
    op<[](f32 a, f32 b) -> u32 { return pair(f32_to_half_rtz(canon(a)), f32_to_half_rtz(canon(b))); }>("v_cvt_pkrtz_f16_f32"),
    custom("v_cvt_pk_f16_f32", half_from_f32<true>, Kind::pk_f16, {Kind::f32, Kind::f32}),
    op<[](f32 a, f32 b) -> u32 { return f32_to_bf16(a) | f32_to_bf16(b) << 16; }>("v_cvt_pk_bf16_f32"),
    op_keep<[](f32 a, u32 seed) -> u16 { return static_cast<u16>(bf16_sr(a, shr(seed, 16))); }>("v_cvt_sr_bf16_f32"),
    op_keep<[](f32 a, u32 seed) -> f16 { return {static_cast<u16>(half_sr(a, shr(seed, 16)))}; }>("v_cvt_sr_f16_f32"),
    op<[](u32 a) -> u32 { return unsigned_byte(a) | unsigned_byte(shr(a, 16)) << 8; }>("v_sat_pk_u8_i16"),
    op<[](u16 a) -> f32 { return bf16_to_f32(a); }>("v_cvt_f32_bf16"),
    op<[](u32 a) -> f32 { return from_byte<Fp8>(a); }>("v_cvt_f32_fp8"),
    op<[](u32 a) -> f32 { return from_byte<Bf8>(a); }>("v_cvt_f32_bf8"),
    custom("v_cvt_pk_f32_fp8", pk_f32_from<Fp8>, Kind::pk_f32, {Kind::b32}),
    custom("v_cvt_pk_f32_bf8", pk_f32_from<Bf8>, Kind::pk_f32, {Kind::b32}),
    custom("v_cvt_pk_fp8_f32", pk_from_f32<Fp8>, Kind::b32, {Kind::f32, Kind::f32}, kReadsDst),
    custom("v_cvt_pk_bf8_f32", pk_from_f32<Bf8>, Kind::b32, {Kind::f32, Kind::f32}, kReadsDst),
    custom("v_cvt_sr_fp8_f32", sr_from_f32<Fp8>, Kind::b32, {Kind::f32, Kind::b32}, kReadsDst),
    custom("v_cvt_sr_bf8_f32", sr_from_f32<Bf8>, Kind::b32, {Kind::f32, Kind::b32}, kReadsDst),
};

}  // namespace

std::span<const AluOp> table_cvt() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
