// Transcendental operations of f32 and f16. AMD documents an error bound (1 ulp), not bits: the result here is the exact
// function rounded to nearest. CDNA3 ISA document: exp and log flush denormals; LLVM treats rcp, rsq and sqrt of f32 as flushing
// too (AMDGPU ISelLowering, AMDGPUCodeGenPrepare). The f16 ones handle denormals.
#include "tables.hpp"
#include "trans.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

constexpr f32 kInf = __builtin_inff();

// A denormal becomes a zero of its sign.
f32 flushed(f32 x) {
  const u32 b = bits<u32>(x);
  return bits<f32>((b & 0x7f800000u) == 0 ? b & 0x80000000u : b);
}

f32 exp2_f32(f32 x) {
  const f32 r = static_cast<f32>(exp2_f64(x));
  return x != x ? bits<f32>(kNan32) : flushed(r);
}

template <class T>
T log2_of(T x) {
  const f64 value = x;
  const f64 r = log2_f64(value);
  const f64 special = value == 0.0 ? -__builtin_inf() : value > 0.0 ? value : bits<f64>(kNan64);
  return static_cast<T>(value > 0.0 && value < __builtin_inf() ? r : special);
}

f32 log2_f32(f32 x) { return canon(log2_of(flushed(x))); }
f32 rcp_f32(f32 x) { return canon(flushed(1.0f / flushed(x))); }
f32 rsq_f32(f32 x) { return canon(static_cast<f32>(1.0 / __builtin_sqrt(f64{flushed(x)}))); }
f32 sqrt_f32(f32 x) { return canon(__builtin_sqrtf(flushed(x))); }

// The argument counts turns. Up to 256 of them (outside: sin 0, cos 1); infinity is invalid.
template <int turns>
f64 sine(f64 x) {
  const f64 a = __builtin_fabs(x);
  const f64 r = sin_quarter(a <= 256.0 ? x : 0.0, turns);
  return a < __builtin_inf() ? r : bits<f64>(kNan64);
}
template <int turns>
f32 sine_f32(f32 x) {
  const f32 y = flushed(x);
  const f32 r = static_cast<f32>(sine<turns>(y));
  return canon(turns == 0 && y == 0.0f ? y : r);
}

f16 exp2_f16(f16 x) {
  const f32 v = value_of(x);
  return half_result(v != v ? f64{v} : exp2_f64(v));
}
f16 log2_f16(f16 x) { return half_result(log2_of(f64{value_of(x)})); }
template <int turns>
f16 sine_f16(f16 x) {
  const f32 v = value_of(x);
  return half_result(turns == 0 && v == 0.0f ? f64{v} : sine<turns>(v));
}

constexpr AluOp kTable[] = {
    op<[](f32 a) -> f32 { return exp2_f32(a); }>("v_exp_f32", kTrans),
    op<[](f32 a) -> f32 { return exp2_f32(a); }>("v_exp_legacy_f32", kTrans),
    op<[](f32 a) -> f32 { return log2_f32(a); }>("v_log_f32", kTrans),
    op<[](f32 a) -> f32 { return log2_f32(a); }>("v_log_legacy_f32", kTrans),
    op<[](f32 a) -> f32 { return rcp_f32(a); }>("v_rcp_f32", kTrans),
    op<[](f32 a) -> f32 { return rcp_f32(a); }>("v_rcp_iflag_f32", kTrans),
    op<[](f32 a) -> f32 { return rsq_f32(a); }>("v_rsq_f32", kTrans),
    op<[](f32 a) -> f32 { return sqrt_f32(a); }>("v_sqrt_f32", kTrans),
    op<[](f32 a) -> f32 { return sine_f32<0>(a); }>("v_sin_f32", kTrans),
    op<[](f32 a) -> f32 { return sine_f32<1>(a); }>("v_cos_f32", kTrans),
    op<[](f16 a) -> f16 { return exp2_f16(a); }>("v_exp_f16", kTrans),
    op<[](f16 a) -> f16 { return log2_f16(a); }>("v_log_f16", kTrans),
    op<[](f16 a) -> f16 { return half_result(1.0 / f64{value_of(a)}); }>("v_rcp_f16", kTrans),
    op<[](f16 a) -> f16 { return half_result(1.0 / __builtin_sqrt(f64{value_of(a)})); }>("v_rsq_f16", kTrans),
    op<[](f16 a) -> f16 { return half_result(__builtin_sqrt(f64{value_of(a)})); }>("v_sqrt_f16", kTrans),
    op<[](f16 a) -> f16 { return sine_f16<0>(a); }>("v_sin_f16", kTrans),
    op<[](f16 a) -> f16 { return sine_f16<1>(a); }>("v_cos_f16", kTrans),
};

}  // namespace

std::span<const AluOp> table_trans() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
