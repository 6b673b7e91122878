// Dot products. Float ones: an fma a term, low element first, each rounded to f32. Integer ones saturate with clamp.
#include "float_ops.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

// src2 of the three-operand forms, the destination in the accumulating (c) ones.
template <bool accumulate>
const Lanes* addend(Lanes* d, const Lanes* const* s) { return accumulate ? d : s[2]; }

u32 pick_half(u32 word, const AluMods& m, int n, int j) {
  const u32 sel = (j ? m.op_sel_hi : m.op_sel) >> n & 1u;
  const u32 neg = (j ? m.neg_hi : m.neg_lo) >> n & 1u;
  return (word >> (16 * sel) & 0xffffu) ^ neg << 15;
}

template <f32 (*decode)(u32), bool accumulate>
void dot2_float(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const u32 *a = s[0]->v, *b = s[1]->v, *c = addend<accumulate>(d, s)->v;
  const AluMods m = accumulate ? AluMods{} : *ctx.mods;  // the VOP2 forms have no modifiers
  const u32 flip = u32{m.neg_lo} >> 2 << 31;
  u32* r = d->v;
  MONOC_LANES {
    f32 sum = bits<f32>(c[i] ^ flip);
    for (int j = 0; j < 2; ++j) sum = fused(decode(pick_half(a[i], m, 0, j)), decode(pick_half(b[i], m, 1, j)), sum);
    const f32 low = sum > 0.0f ? sum : 0.0f;
    const f32 limited = low > 1.0f ? 1.0f : low;
    r[i] = bits<u32>(m.clamp ? limited : canon(sum));
  }
}

template <int width, bool is_signed, bool accumulate>
void dot_int(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const u32 *a = s[0]->v, *b = s[1]->v, *c = addend<accumulate>(d, s)->v;
  const AluMods m = accumulate ? AluMods{} : *ctx.mods;
  u32* r = d->v;
  MONOC_LANES {
    i64 sum = is_signed ? i64{static_cast<i32>(c[i])} : i64{c[i]};
    for (int j = 0; j < 32 / width; ++j) {
      u32 x = a[i] >> (width * j), y = b[i] >> (width * j);
      if constexpr (width == 16) {
        x = pick_half(a[i], m, 0, j);
        y = pick_half(b[i], m, 1, j);
      }
      const u32 p = x << (32 - width), q = y << (32 - width);
      sum += is_signed ? i64{static_cast<i32>(p) >> (32 - width)} * (static_cast<i32>(q) >> (32 - width))
                       : i64{p >> (32 - width)} * (q >> (32 - width));
    }
    const i64 low = is_signed ? INT32_MIN : 0, high = is_signed ? i64{INT32_MAX} : i64{UINT32_MAX};
    r[i] = static_cast<u32>(!m.clamp ? sum : sum < low ? low : sum > high ? high : sum);
  }
}

f32 from_f16(u32 h) { return half_to_f32(h); }
f32 from_bf16(u32 h) { return bf16_to_f32(h); }

constexpr AluOp dot(const char* name, AluFn fn, Kind source, Kind result) {
  return custom(name, fn, result, {source, source, result}, kPacked);
}
constexpr AluOp dotc(const char* name, AluFn fn, Kind source, Kind result) {
  return custom(name, fn, result, {source, source}, kReadsDst);
}

constexpr AluOp kTable[] = {
    dot("v_dot2_f32_f16", dot2_float<from_f16, false>, Kind::pk_f16, Kind::f32),
    dot("v_dot2_f32_bf16", dot2_float<from_bf16, false>, Kind::pk_bf16, Kind::f32),
    dotc("v_dot2c_f32_f16", dot2_float<from_f16, true>, Kind::pk_f16, Kind::f32),
    dotc("v_dot2c_f32_bf16", dot2_float<from_bf16, true>, Kind::pk_bf16, Kind::f32),
    dot("v_dot2_i32_i16", dot_int<16, true, false>, Kind::pk_b16, Kind::i32),
    dot("v_dot2_u32_u16", dot_int<16, false, false>, Kind::pk_b16, Kind::u32),
    dot("v_dot4_i32_i8", dot_int<8, true, false>, Kind::b32, Kind::i32),
    dot("v_dot4_u32_u8", dot_int<8, false, false>, Kind::b32, Kind::u32),
    dot("v_dot8_i32_i4", dot_int<4, true, false>, Kind::b32, Kind::i32),
    dot("v_dot8_u32_u4", dot_int<4, false, false>, Kind::b32, Kind::u32),
    dotc("v_dot2c_i32_i16", dot_int<16, true, true>, Kind::pk_b16, Kind::i32),
    dotc("v_dot4c_i32_i8", dot_int<8, true, true>, Kind::b32, Kind::i32),
    dotc("v_dot8c_i32_i4", dot_int<4, true, true>, Kind::b32, Kind::i32),
};

}  // namespace

std::span<const AluOp> table_dot() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
