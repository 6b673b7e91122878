// Half-precision arithmetic. Sums and products go through f32 and fused ones through f64: wide enough that the second rounding
// changes nothing (24 >= 2 * 11 + 2 bits; for the fused ones the wide sum is exact or far from a tie).
#include "float_ops.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

f16 fma_half(f16 a, f16 b, f16 c) {
  return half_result(f64{value_of(a)} * f64{value_of(b)} + f64{value_of(c)});
}
f16 mad_half(f16 a, f16 b, f16 c) { return half_result(value_of(half_result(value_of(a) * value_of(b))) + value_of(c)); }

bool signalling(f16 x) { return (x.v & 0x7fffu) - 0x7c01u < 0x1ffu; }
f16 max_half(f16 a, f16 b) { return half_result(max_num(value_of(a), value_of(b))); }
f16 min_half(f16 a, f16 b) { return half_result(min_num(value_of(a), value_of(b))); }

f16 div_fixup(f16 q, f16 den, f16 num) {
  const u32 sign = (den.v ^ num.v) & 0x8000u;
  const u32 d = den.v & 0x7fffu, n = num.v & 0x7fffu;
  const bool nan = d > 0x7c00u || n > 0x7c00u || (d == 0 && n == 0) || (d == 0x7c00u && n == 0x7c00u);
  const u32 m = d == 0 || n == 0x7c00u ? 0x7c00u : d == 0x7c00u || n == 0 ? 0u : q.v & 0x7fffu;
  return {static_cast<u16>(nan || m > 0x7c00u ? 0x7e00u : m | sign)};
}

f16 fract_half(f16 x) {
  const f32 v = value_of(x);
  const f32 r = v - __builtin_floorf(v);
  return half_result(r > value_of(f16{0x3bff}) ? value_of(f16{0x3bff}) : r);
}

template <auto Ieee, auto Plain>
void by_mode(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  ctx.mode & 0x200u ? run<Ieee>(d, s, ctx) : run<Plain>(d, s, ctx);
}

constexpr auto max_0 = [](f16 a, f16 b) -> f16 { return max_half(a, b); };
constexpr auto min_0 = [](f16 a, f16 b) -> f16 { return min_half(a, b); };
constexpr auto max_1 = [](f16 a, f16 b) -> f16 { return signalling(a) | signalling(b) ? f16{0x7e00} : max_half(a, b); };
constexpr auto min_1 = [](f16 a, f16 b) -> f16 { return signalling(a) | signalling(b) ? f16{0x7e00} : min_half(a, b); };

constexpr AluOp kTable[] = {
    op<[](f16 a, f16 b) -> f16 { return half_result(value_of(a) + value_of(b)); }>("v_add_f16"),
    op<[](f16 a, f16 b) -> f16 { return half_result(value_of(a) - value_of(b)); }>("v_sub_f16"),
    op<[](f16 a, f16 b) -> f16 { return half_result(value_of(b) - value_of(a)); }>("v_subrev_f16"),
    op<[](f16 a, f16 b) -> f16 { return half_result(value_of(a) * value_of(b)); }>("v_mul_f16"),
    op_keep<[](f16 a, f16 b, f16 c) -> f16 { return fma_half(a, b, c); }>("v_fma_f16"),
    op_keep<[](f16 a, f16 b, f16 c) -> f16 { return mad_half(a, b, c); }>("v_mad_f16"),
    op_acc<[](f16 d, f16 a, f16 b) -> f16 { return fma_half(a, b, d); }>("v_fmac_f16"),
    op_acc<[](f16 d, f16 a, f16 b) -> f16 { return mad_half(a, b, d); }>("v_mac_f16"),
    custom("v_max_f16", by_mode<max_1, max_0>, Kind::f16, {Kind::f16, Kind::f16}, kReadsDst),
    custom("v_min_f16", by_mode<min_1, min_0>, Kind::f16, {Kind::f16, Kind::f16}, kReadsDst),
    op_keep<[](f16 a, f16 b, f16 c) -> f16 { return max_half(max_half(a, b), c); }>("v_max3_f16"),
    op_keep<[](f16 a, f16 b, f16 c) -> f16 { return min_half(min_half(a, b), c); }>("v_min3_f16"),
    op_keep<[](f16 a, f16 b, f16 c) -> f16 { return half_result(med3(value_of(a), value_of(b), value_of(c))); }>("v_med3_f16"),
    op<[](f16 a) -> f16 { return half_result(__builtin_truncf(value_of(a))); }>("v_trunc_f16"),
    op<[](f16 a) -> f16 { return half_result(__builtin_ceilf(value_of(a))); }>("v_ceil_f16"),
    op<[](f16 a) -> f16 { return half_result(__builtin_floorf(value_of(a))); }>("v_floor_f16"),
    op<[](f16 a) -> f16 { return half_result(__builtin_rintf(value_of(a))); }>("v_rndne_f16"),
    op<[](f16 a) -> f16 { return fract_half(a); }>("v_fract_f16"),
    op<[](f16 a) -> f16 { return half_result(frexp_mant(value_of(a))); }>("v_frexp_mant_f16"),
    op<[](f16 a) -> i16 { return static_cast<i16>(frexp_exp(value_of(a))); }>("v_frexp_exp_i16_f16"),
    op<[](f16 a, i16 n) -> f16 { return half_result(f64{value_of(a)} * pow2_f64(limit(n, 100))); }>("v_ldexp_f16"),
    op_keep<[](f16 a, f16 b, f16 c) -> f16 { return div_fixup(a, b, c); }>("v_div_fixup_f16"),
};

}  // namespace

std::span<const AluOp> table_f16() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
