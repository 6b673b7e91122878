// 16-bit integer operations. op_sel picks halves; the classic ones clear the destination's high half, the three-source ones
// of GFX9 keep it (LLVM: GCNSubtarget::zeroesHigh16BitsOfDest).
#include "lanes.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

constexpr u16 wrap(u32 x) { return static_cast<u16>(x); }
constexpr u16 sat_u(i32 x) { return static_cast<u16>(x < 0 ? 0 : x > 0xffff ? 0xffff : x); }
constexpr i16 sat_s(i32 x) { return static_cast<i16>(x < -32768 ? -32768 : x > 32767 ? 32767 : x); }
constexpr u64 least(u64 x, u64 limit) { return x < limit ? x : limit; }
constexpr i32 lo(i32 a, i32 b) { return a < b ? a : b; }
constexpr i32 hi(i32 a, i32 b) { return a < b ? b : a; }
constexpr i32 mid(i32 a, i32 b, i32 c) { return hi(lo(a, b), lo(hi(a, b), c)); }

void bitop3_b16(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const AluMods& mods = *ctx.mods;
  const u32 table = mods.bitop3;
  const Src<u16> a(s[0], mods.op_sel & 1), b(s[1], mods.op_sel >> 1 & 1), c(s[2], mods.op_sel >> 2 & 1);
  const bool high = mods.op_sel & 8;
  u32* r = d->v;
  MONOC_LANES {
    const u32 x = a[i], y = b[i], z = c[i];
    u32 result = 0;
    for (u32 j = 0; j < 8; ++j) {
      const u32 term = (j & 4 ? x : ~x) & (j & 2 ? y : ~y) & (j & 1 ? z : ~z);
      result |= (0u - (table >> j & 1u)) & term;
    }
    result &= 0xffffu;
    r[i] = high ? (r[i] & 0xffffu) | result << 16 : (r[i] & 0xffff0000u) | result;
  }
}

constexpr AluOp kTable[] = {
    op_clamp<[](u16 a, u16 b) -> u16 { return wrap(a + b); }, [](u16 a, u16 b) -> u16 { return sat_u(a + b); }>("v_add_u16"),
    op_clamp<[](u16 a, u16 b) -> u16 { return wrap(a - b); }, [](u16 a, u16 b) -> u16 { return sat_u(a - b); }>("v_sub_u16"),
    op_clamp<[](u16 a, u16 b) -> u16 { return wrap(b - a); }, [](u16 a, u16 b) -> u16 { return sat_u(b - a); }>("v_subrev_u16"),
    op_clamp<[](i16 a, i16 b) -> i16 { return static_cast<i16>(a + b); }, [](i16 a, i16 b) -> i16 { return sat_s(a + b); }>(
        "v_add_i16"),
    op_clamp<[](i16 a, i16 b) -> i16 { return static_cast<i16>(a - b); }, [](i16 a, i16 b) -> i16 { return sat_s(a - b); }>(
        "v_sub_i16"),
    op<[](u16 a, u16 b) -> u16 { return wrap(u32{a} * b); }>("v_mul_lo_u16"),
    op<[](u16 a, u16 b) -> u16 { return wrap(u32{b} << (a & 15)); }>("v_lshlrev_b16"),
    op<[](u16 a, u16 b) -> u16 { return wrap(shr(u32{b}, a & 15)); }>("v_lshrrev_b16"),
    op<[](u16 a, i16 b) -> i16 { return static_cast<i16>(shr(i32{b}, a & 15)); }>("v_ashrrev_i16"),
    op<[](u16 a, u16 b) -> u16 { return static_cast<u16>(lo(a, b)); }>("v_min_u16"),
    op<[](u16 a, u16 b) -> u16 { return static_cast<u16>(hi(a, b)); }>("v_max_u16"),
    op<[](i16 a, i16 b) -> i16 { return static_cast<i16>(lo(a, b)); }>("v_min_i16"),
    op<[](i16 a, i16 b) -> i16 { return static_cast<i16>(hi(a, b)); }>("v_max_i16"),
    op_keep<[](u16 a, u16 b, u16 c) -> u16 { return static_cast<u16>(lo(lo(a, b), c)); }>("v_min3_u16"),
    op_keep<[](u16 a, u16 b, u16 c) -> u16 { return static_cast<u16>(hi(hi(a, b), c)); }>("v_max3_u16"),
    op_keep<[](u16 a, u16 b, u16 c) -> u16 { return static_cast<u16>(mid(a, b, c)); }>("v_med3_u16"),
    op_keep<[](i16 a, i16 b, i16 c) -> i16 { return static_cast<i16>(lo(lo(a, b), c)); }>("v_min3_i16"),
    op_keep<[](i16 a, i16 b, i16 c) -> i16 { return static_cast<i16>(hi(hi(a, b), c)); }>("v_max3_i16"),
    op_keep<[](i16 a, i16 b, i16 c) -> i16 { return static_cast<i16>(mid(a, b, c)); }>("v_med3_i16"),
    op_keep<[](u16 a, u16 b, u16 c) -> u16 { return wrap(u32{a} * b + c); },
            [](u16 a, u16 b, u16 c) -> u16 { return wrap(least(u64{a} * b + c, 0xffff)); }>("v_mad_u16"),
    op_keep<[](i16 a, i16 b, i16 c) -> i16 { return static_cast<i16>(a * b + c); },
            [](i16 a, i16 b, i16 c) -> i16 { return sat_s(a * b + c); }>("v_mad_i16"),
    op_clamp<[](u16 a, u16 b, u32 c) -> u32 { return u32{a} * b + c; },
             [](u16 a, u16 b, u32 c) -> u32 { return static_cast<u32>(least(u64{u32{a} * b} + c, 0xffffffff)); }>("v_mad_u32_u16"),
    op_clamp<[](i16 a, i16 b, u32 c) -> u32 { return static_cast<u32>(i32{a} * b) + c; },
             [](i16 a, i16 b, u32 c) -> u32 {
               return static_cast<u32>(sat_i32(i64{i32{a} * b} + static_cast<i32>(c)));
             }>("v_mad_i32_i16"),
    op<[](f16 a, f16 b) -> u32 { return a.v | u32{b.v} << 16; }>("v_pack_b32_f16"),
    custom("v_bitop3_b16", bitop3_b16, Kind::b16, {Kind::b16, Kind::b16, Kind::b16}, kReadsDst),
};

}  // namespace

std::span<const AluOp> table_int16() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
