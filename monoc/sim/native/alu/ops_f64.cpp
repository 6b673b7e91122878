// Double-precision arithmetic.
#include "float_ops.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

i32 exponent(f64 x) { return static_cast<i32>(bits<u64>(x) >> 52 & 0x7ffu); }
bool denormal(f64 x) { return exponent(x) == 0 && x != 0.0; }

// See ops_f32.cpp; here the scale is 2^128 and the limits are those of V_DIV_SCALE_F64.
void div_scale(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const Src<f64> x(s[0]), den(s[1]), num(s[2]);
  const Dst<f64> out(d);
  u64 flags = 0;
  for (int i = 0; i < 64; ++i) {
    const f64 s0 = x[i], s1 = den[i], s2 = num[i];
    const bool same_den = bits<u64>(s0) == bits<u64>(s1), same_num = bits<u64>(s0) == bits<u64>(s2);
    f64 r = s0;
    bool flag = false;
    if (s2 == 0.0 || s1 == 0.0) {
      r = bits<f64>(kNan64);
    } else if (exponent(s2) - exponent(s1) >= 768) {
      flag = true;
      if (same_den) r = ldexp_f64(s0, 128);
    } else if (denormal(s1)) {
      r = ldexp_f64(s0, 128);
    } else if (denormal(1.0 / s1) && denormal(s2 / s1)) {
      flag = true;
      if (same_den) r = ldexp_f64(s0, -128);
    } else if (denormal(1.0 / s1)) {
      r = ldexp_f64(s0, -128);
    } else if (denormal(s2 / s1)) {
      flag = true;
      if (same_num) r = ldexp_f64(s0, 128);
    } else if (exponent(s2) <= 53) {
      r = ldexp_f64(s0, 128);
    }
    out.set(i, r);
    flags |= u64{flag} << i;
  }
  ctx.mask_out = flags;
}

void div_fmas(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const Src<f64> a(s[0]), b(s[1]), c(s[2]);
  const Dst<f64> out(d);
  for (int i = 0; i < 64; ++i) {
    const f64 z = c[i];
    const f64 r = fused(a[i], b[i], z);
    out.set(i, canon(ctx.mask_in >> i & 1 ? r * (exponent(z) > 1023 ? 0x1p128 : 0x1p-128) : r));
  }
}

f64 div_fixup(f64 q, f64 den, f64 num) {
  const u64 sign = (bits<u64>(den) ^ bits<u64>(num)) & 0x8000000000000000ull;
  const f64 d = __builtin_fabs(den), n = __builtin_fabs(num);
  const f64 inf = __builtin_inf();
  if (is_nan(den) || is_nan(num) || (d == 0.0 && n == 0.0) || (d == inf && n == inf)) return bits<f64>(kNan64);
  const i32 gap = exponent(num) - exponent(den);
  const bool to_zero = d == inf || n == 0.0 || gap < -1075;
  const bool to_inf = d == 0.0 || n == inf || (d != inf && gap >= 1025);
  const f64 magnitude = to_inf ? inf : to_zero ? 0.0 : __builtin_fabs(q);
  return canon(bits<f64>(bits<u64>(magnitude) | sign));
}

template <auto Ieee, auto Plain>
void by_mode(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  ctx.mode & 0x200u ? run<Ieee>(d, s, ctx) : run<Plain>(d, s, ctx);
}

constexpr auto max_1 = [](f64 a, f64 b) -> f64 { return max_ieee(a, b); };
constexpr auto max_0 = [](f64 a, f64 b) -> f64 { return max_num(a, b); };
constexpr auto min_1 = [](f64 a, f64 b) -> f64 { return min_ieee(a, b); };
constexpr auto min_0 = [](f64 a, f64 b) -> f64 { return min_num(a, b); };

constexpr AluOp kTable[] = {
    op<[](f64 a, f64 b) -> f64 { return canon(a + b); }>("v_add_f64"),
    op<[](f64 a, f64 b) -> f64 { return canon(a * b); }>("v_mul_f64"),
    op<[](f64 a, f64 b, f64 c) -> f64 { return canon(fused(a, b, c)); }>("v_fma_f64"),
    op_acc<[](f64 d, f64 a, f64 b) -> f64 { return canon(fused(a, b, d)); }>("v_fmac_f64"),
    custom("v_max_f64", by_mode<max_1, max_0>, Kind::f64, {Kind::f64, Kind::f64}),
    custom("v_min_f64", by_mode<min_1, min_0>, Kind::f64, {Kind::f64, Kind::f64}),
    op<[](f64 a) -> f64 { return canon(__builtin_trunc(a)); }>("v_trunc_f64"),
    op<[](f64 a) -> f64 { return canon(__builtin_ceil(a)); }>("v_ceil_f64"),
    op<[](f64 a) -> f64 { return canon(__builtin_floor(a)); }>("v_floor_f64"),
    op<[](f64 a) -> f64 { return canon(__builtin_rint(a)); }>("v_rndne_f64"),
    op<[](f64 a) -> f64 { return fract(a); }>("v_fract_f64"),
    op<[](f64 a) -> f64 { return frexp_mant(a); }>("v_frexp_mant_f64"),
    op<[](f64 a) -> i32 { return frexp_exp(a); }>("v_frexp_exp_i32_f64"),
    op<[](f64 a, i32 n) -> f64 { return ldexp_f64(a, n); }>("v_ldexp_f64"),
    op<[](f64 a) -> f64 { return canon(1.0 / a); }>("v_rcp_f64", kTrans),
    op<[](f64 a) -> f64 { return canon(1.0 / __builtin_sqrt(a)); }>("v_rsq_f64", kTrans),
    op<[](f64 a) -> f64 { return canon(__builtin_sqrt(a)); }>("v_sqrt_f64", kTrans),
    custom("v_div_scale_f64", div_scale, Kind::f64, {Kind::f64, Kind::f64, Kind::f64}, kMaskDst),
    custom("v_div_fmas_f64", div_fmas, Kind::f64, {Kind::f64, Kind::f64, Kind::f64}, kMaskSrcVcc),
    op<[](f64 a, f64 b, f64 c) -> f64 { return div_fixup(a, b, c); }>("v_div_fixup_f64"),
};

}  // namespace

std::span<const AluOp> table_f64() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
