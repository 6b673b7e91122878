// Single-precision arithmetic.
#include "float_ops.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

f32 mul_legacy(f32 a, f32 b) { return a == 0.0f || b == 0.0f ? 0.0f : canon(a * b); }

u32 exponent(f32 x) { return bits<u32>(x) >> 23 & 0xffu; }
bool denormal(f32 x) { return exponent(x) == 0 && x != 0.0f; }
bool denormal_quotient(f64 a, f64 b) {
  const f64 q = __builtin_fabs(a / b);
  return q < 0x1p-126 && q > 0.0;
}

// First step of a division src2 / src1: scales the one of the two that src0 is, so that the reciprocal iteration neither
// overflows nor meets denormals; the flag tells v_div_fmas to undo it. CDNA3 ISA document, V_DIV_SCALE_F32, except that a
// denominator whose reciprocal and quotient are both denormal is scaled down (the document's scaling up would overflow).
void div_scale(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const Src<f32> x(s[0]), den(s[1]), num(s[2]);
  const Dst<f32> out(d);
  u64 flags = 0;
  for (int i = 0; i < 64; ++i) {
    const f32 s0 = x[i], s1 = den[i], s2 = num[i];
    const bool same_den = bits<u32>(s0) == bits<u32>(s1), same_num = bits<u32>(s0) == bits<u32>(s2);
    f32 r = s0;
    bool flag = false;
    if (s2 == 0.0f || s1 == 0.0f) {
      r = bits<f32>(kNan32);
    } else if (static_cast<i32>(exponent(s2)) - static_cast<i32>(exponent(s1)) >= 96) {
      flag = true;
      if (same_den) r = ldexp_f32(s0, 64);
    } else if (denormal(s1)) {
      r = ldexp_f32(s0, 64);
    } else if (denormal_quotient(1.0, s1) && denormal_quotient(s2, s1)) {
      flag = true;
      if (same_den) r = ldexp_f32(s0, -64);
    } else if (denormal_quotient(1.0, s1)) {
      r = ldexp_f32(s0, -64);
    } else if (denormal_quotient(s2, s1)) {
      flag = true;
      if (same_num) r = ldexp_f32(s0, 64);
    } else if (exponent(s2) <= 23) {
      r = ldexp_f32(s0, 64);
    }
    out.set(i, r);
    flags |= u64{flag} << i;
  }
  ctx.mask_out = flags;
}

// a + b as f64, rounded to odd: the sum may be rounded again (to f32) without a double rounding.
f64 add_odd(f64 a, f64 b) {
  const f64 sum = a + b;
  const f64 back = sum - a;
  const f64 error = (a - (sum - back)) + (b - back);
  const u64 word = bits<u64>(sum);
  if (!(error < 0.0 || error > 0.0)) return sum;
  const bool toward_zero = (error > 0.0) == (sum > 0.0);
  return bits<f64>((toward_zero ? word : word - 1) | 1);
}

// The quotient is an estimate from scaled operands: large means it has to come up, small that it has to go down. One rounding.
void div_fmas(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const Src<f32> a(s[0]), b(s[1]), c(s[2]);
  const Dst<f32> out(d);
  const u64 mask = ctx.mask_in;
  for (int i = 0; i < 64; ++i) {
    const f32 x = a[i], y = b[i], z = c[i];
    f32 r = fused(x, y, z);
    if (mask >> i & 1) r = static_cast<f32>(add_odd(f64{x} * y, z) * (exponent(z) > 127 ? 0x1p64 : 0x1p-64));
    out.set(i, canon(r));
  }
}

// Last step of a division: the special cases. src0 is the quotient, src1 the denominator, src2 the numerator. A quotient that must
// overflow is infinity, whatever the iteration made of it (it meets inf - inf).
f32 div_fixup(f32 q, f32 den, f32 num) {
  const u32 sign = (bits<u32>(den) ^ bits<u32>(num)) & 0x80000000u;
  const f32 d = abs_bits(bits<u32>(den)), n = abs_bits(bits<u32>(num));
  const f32 inf = bits<f32>(0x7f800000u);
  const bool nan = is_nan(den) | is_nan(num) | ((d == 0.0f) & (n == 0.0f)) | ((d == inf) & (n == inf));
  const i32 gap = static_cast<i32>(exponent(num)) - static_cast<i32>(exponent(den));
  const bool to_zero = (d == inf) | (n == 0.0f) | (gap < -150);
  const bool to_inf = (d == 0.0f) | (n == inf) | ((d != inf) & (gap >= 129));
  const u32 quotient = bits<u32>(q) & 0x7fffffffu;
  const u32 small = to_zero ? 0u : quotient;
  const u32 magnitude = to_inf ? 0x7f800000u : small;
  return bits<f32>(nan | (magnitude > 0x7f800000u) ? kNan32 : magnitude | sign);
}

template <auto Ieee, auto Plain>
void by_mode(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  ctx.mode & 0x200u ? run<Ieee>(d, s, ctx) : run<Plain>(d, s, ctx);
}

constexpr auto max_1 = [](f32 a, f32 b) -> f32 { return max_ieee(a, b); };
constexpr auto max_0 = [](f32 a, f32 b) -> f32 { return max_num(a, b); };
constexpr auto min_1 = [](f32 a, f32 b) -> f32 { return min_ieee(a, b); };
constexpr auto min_0 = [](f32 a, f32 b) -> f32 { return min_num(a, b); };
constexpr auto fma_f32 = [](f32 a, f32 b, f32 c) -> f32 { return canon(fused(a, b, c)); };

constexpr AluOp kTable[] = {
    op<[](f32 a, f32 b) -> f32 { return canon(a + b); }>("v_add_f32"),
    op<[](f32 a, f32 b) -> f32 { return canon(a - b); }>("v_sub_f32"),
    op<[](f32 a, f32 b) -> f32 { return canon(b - a); }>("v_subrev_f32"),
    op<[](f32 a, f32 b) -> f32 { return canon(a * b); }>("v_mul_f32"),
    op<[](f32 a, f32 b) -> f32 { return mul_legacy(a, b); }>("v_mul_legacy_f32"),
    op<fma_f32>("v_fma_f32"),
    op<fma_f32>("v_fmaak_f32"),  // the text has the constant third here,
    op<fma_f32>("v_fmamk_f32"),  // second here: src0 * src1 + src2 in both
    op_acc<[](f32 d, f32 a, f32 b) -> f32 { return canon(fused(a, b, d)); }>("v_fmac_f32"),
    custom("v_max_f32", by_mode<max_1, max_0>, Kind::f32, {Kind::f32, Kind::f32}),
    custom("v_min_f32", by_mode<min_1, min_0>, Kind::f32, {Kind::f32, Kind::f32}),
    op<[](f32 a, f32 b, f32 c) -> f32 { return canon(max_num(max_num(a, b), c)); }>("v_max3_f32"),
    op<[](f32 a, f32 b, f32 c) -> f32 { return canon(min_num(min_num(a, b), c)); }>("v_min3_f32"),
    op<[](f32 a, f32 b, f32 c) -> f32 { return canon(med3(a, b, c)); }>("v_med3_f32"),
    op<[](f32 a, f32 b, f32 c) -> f32 { return maximum(maximum(a, b), c); }>("v_maximum3_f32"),
    op<[](f32 a, f32 b, f32 c) -> f32 { return minimum(minimum(a, b), c); }>("v_minimum3_f32"),
    op<[](f32 a) -> f32 { return canon(__builtin_truncf(a)); }>("v_trunc_f32"),
    op<[](f32 a) -> f32 { return canon(__builtin_ceilf(a)); }>("v_ceil_f32"),
    op<[](f32 a) -> f32 { return canon(__builtin_floorf(a)); }>("v_floor_f32"),
    op<[](f32 a) -> f32 { return canon(__builtin_rintf(a)); }>("v_rndne_f32"),
    op<[](f32 a) -> f32 { return fract(a); }>("v_fract_f32"),
    op<[](f32 a) -> f32 { return frexp_mant(a); }>("v_frexp_mant_f32"),
    op<[](f32 a) -> i32 { return frexp_exp(a); }>("v_frexp_exp_i32_f32"),
    op<[](f32 a, i32 n) -> f32 { return ldexp_f32(a, n); }>("v_ldexp_f32"),
    custom("v_div_scale_f32", div_scale, Kind::f32, {Kind::f32, Kind::f32, Kind::f32}, kMaskDst),
    custom("v_div_fmas_f32", div_fmas, Kind::f32, {Kind::f32, Kind::f32, Kind::f32}, kMaskSrcVcc),
    op<[](f32 a, f32 b, f32 c) -> f32 { return div_fixup(a, b, c); }>("v_div_fixup_f32"),
};

}  // namespace

std::span<const AluOp> table_f32() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
