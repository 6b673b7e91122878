// 32- and 64-bit integer and bit operations.
#include "lanes.hpp"
#include "tables.hpp"

namespace monoc::sim::alu::MONOC_ALU_NS {
namespace {

u32 sat_add(u32 a, u32 b) { return a + b < a ? ~0u : a + b; }
u32 sat_sub(u32 a, u32 b) { return a < b ? 0u : a - b; }
u32 sat_u32(u64 x) { return x > UINT32_MAX ? ~0u : static_cast<u32>(x); }
i32 sext24(i32 x) { return static_cast<i32>(static_cast<u32>(x) << 8) >> 8; }
u32 rol(u32 x, u32 n) { return n ? x << n | x >> (32 - n) : x; }

u32 bfe_u32(u32 x, u32 offset, u32 width) {
  const u32 w = width & 31;
  return (x >> (offset & 31)) & ((1u << w) - 1u);
}

// A width of zero gives zero; a field that reaches past bit 31 is extended from bit 31.
i32 bfe_i32(i32 x, u32 offset, u32 width) {
  const u32 w = width & 31;
  const i32 shifted = x >> (offset & 31);
  const u32 drop = (32 - w) & 31;
  const i32 field = static_cast<i32>(static_cast<u32>(shifted) << drop) >> drop;
  return w ? field : 0;
}

// The usual selectors, all below 8.
u32 perm_bytes(u32 s0, u32 s1, u32 selector) {
  u32 result = 0;
  for (u32 j = 0; j < 4; ++j) {
    const u32 sel = selector >> (8 * j);
    const u32 word = sel & 4u ? s0 : s1;
    result |= (word >> (8 * (sel & 3u)) & 0xffu) << (8 * j);
  }
  return result;
}

// Byte selectors 0-3 pick from src1, 4-7 from src0, 8-11 the signs of bytes 1, 3, 5, 7, 12 is 0x00, above 0xff.
u32 perm_b32(u32 s0, u32 s1, u32 selector) {
  const u64 both = u64{s0} << 32 | s1;
  u32 result = 0;
  for (u32 j = 0; j < 4; ++j) {
    const u32 sel = (selector >> (8 * j)) & 0xff;
    const u32 byte = static_cast<u32>(both >> (8 * (sel & 7))) & 0xff;
    const u32 sign_bit = 16 * (sel & 3) + 15;
    const u32 sign = (both >> sign_bit) & 1 ? 0xffu : 0u;
    result |= (sel < 8 ? byte : sel < 12 ? sign : sel == 12 ? 0u : 0xffu) << (8 * j);
  }
  return result;
}

u32 bfrev(u32 x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}

u32 popcount(u32 x) {
  x -= x >> 1 & 0x55555555u;
  x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
  x = (x + (x >> 4)) & 0x0f0f0f0fu;
  return x * 0x01010101u >> 24;
}

// First set bit from the top / bottom, counted from that end; -1 if there is none.
u32 ffbh(u32 x) { return x ? static_cast<u32>(__builtin_clz(x)) : ~0u; }
u32 ffbl(u32 x) { return x ? static_cast<u32>(__builtin_ctz(x)) : ~0u; }
// First bit that differs from the sign bit.
u32 ffbh_i32(i32 x) { return ffbh(static_cast<u32>(x ^ (x >> 31))); }

u32 sad(u32 a, u32 b, u32 width, bool masked) {
  u32 sum = 0;
  const u32 mask = width == 32 ? ~0u : (1u << width) - 1u;
  for (u32 at = 0; at < 32; at += width) {
    const u32 x = a >> at & mask;
    const u32 y = b >> at & mask;
    if (!masked || y != 0) sum += x > y ? x - y : y - x;
  }
  return sum;
}

// Four sums of absolute differences of src1's bytes with a window that slides over src0.
u64 qsad(u64 s0, u32 s1, u64 acc, bool masked) {
  u64 result = 0;
  for (u32 j = 0; j < 4; ++j) {
    const u32 sum = static_cast<u32>(acc >> (16 * j) & 0xffff) + sad(static_cast<u32>(s0 >> (8 * j)), s1, 8, masked);
    result |= u64{sum > 0xffff ? 0xffff : sum} << (16 * j);
  }
  return result;
}

u32 lerp_u8(u32 a, u32 b, u32 round) {
  u32 result = 0;
  for (u32 at = 0; at < 32; at += 8) {
    const u32 sum = (a >> at & 0xff) + (b >> at & 0xff) + (round >> at & 1);
    result |= (sum >> 1) << at;
  }
  return result;
}

// Arithmetic shift of both sources, saturated to a byte each: a 16-bit result, so op_sel may put it into the high half.
template <i32 lo, i32 hi>
u16 ashr_pk(i32 a, i32 b, u32 shift) {
  const i32 x = a >> (shift & 31);
  const i32 y = b >> (shift & 31);
  const u32 p = static_cast<u32>(x < lo ? lo : x > hi ? hi : x) & 0xff;
  const u32 q = static_cast<u32>(y < lo ? lo : y > hi ? hi : y) & 0xff;
  return static_cast<u16>(p | q << 8);
}

template <bool carry_in, bool subtract, bool reverse, bool clamp>
void carry_lanes(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const u32* a = (reverse ? s[1] : s[0])->v;
  const u32* b = (reverse ? s[0] : s[1])->v;
  alignas(64) u32 out[64];
  alignas(64) u32 in[64];
  if constexpr (carry_in) unpack_mask(ctx.mask_in, in);
  u32* r = d->v;
  MONOC_LANES {
    const u32 x = a[i];
    const u32 y = b[i];
    const u32 c = carry_in ? in[i] & 1u : 0u;
    const u32 z = subtract ? x - y : x + y;
    const u32 w = subtract ? z - c : z + c;
    const u32 first = (subtract ? x < y : z < x) ? ~0u : 0u;
    const u32 second = (subtract ? z < c : w < z) ? ~0u : 0u;
    const u32 over = first | second;
    out[i] = over;
    r[i] = !clamp ? w : subtract ? w & ~over : w | over;
  }
  ctx.mask_out = pack_mask(out);
}

template <bool carry_in, bool subtract, bool reverse>
void carry(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  ctx.mods->clamp ? carry_lanes<carry_in, subtract, reverse, true>(d, s, ctx)
                  : carry_lanes<carry_in, subtract, reverse, false>(d, s, ctx);
}

[[gnu::flatten]] void perm(Lanes* d, const Lanes* const* s, AluCtx&) {
  const u32 *a = s[0]->v, *b = s[1]->v, *selector = s[2]->v;
  u32* r = d->v;
  u32 any = 0;
  for (int i = 0; i < 64; ++i) any |= selector[i];
  if (any & 0xf8f8f8f8u) {
    MONOC_LANES r[i] = perm_b32(a[i], b[i], selector[i]);
  } else {
    MONOC_LANES r[i] = perm_bytes(a[i], b[i], selector[i]);
  }
}

template <bool is_signed>
void mad64(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  alignas(64) u32 out[64];
  const Src<u32> a(s[0]), b(s[1]);
  const Src<u64> c(s[2]);
  const Dst<u64> r(d);
  MONOC_LANES {
    const u64 addend = c[i];
    const u64 product = is_signed ? static_cast<u64>(i64{static_cast<i32>(a[i])} * static_cast<i32>(b[i])) : u64{a[i]} * b[i];
    const u64 sum = product + addend;
    const bool over = is_signed ? (static_cast<i64>((sum ^ product) & (sum ^ addend)) < 0) : sum < product;
    out[i] = over ? ~0u : 0u;
    r.set(i, sum);
  }
  ctx.mask_out = pack_mask(out);
}

template <int base>
void mbcnt(Lanes* d, const Lanes* const* s, AluCtx&) {
  const u32* mask = s[0]->v;
  const u32* add = s[1]->v;
  u32* r = d->v;
  MONOC_LANES {
    const int below = i - base;
    const u32 lanes = below <= 0 ? 0u : below >= 32 ? ~0u : (1u << (below & 31)) - 1u;
    r[i] = popcount(mask[i] & lanes) + add[i];
  }
}

// Truth table bit (a b c): the sources' bits index it as a * 4 + b * 2 + c (0xf0, 0xcc and 0xaa are the sources themselves).
void bitop3_b32(Lanes* d, const Lanes* const* s, AluCtx& ctx) {
  const u32 table = ctx.mods->bitop3;
  u32 term[8];
  for (u32 j = 0; j < 8; ++j) term[j] = 0u - (table >> j & 1u);
  const u32 *a = s[0]->v, *b = s[1]->v, *c = s[2]->v;
  u32* r = d->v;
  MONOC_LANES {
    const u32 x = a[i], y = b[i], z = c[i];
    r[i] = (term[0] & ~x & ~y & ~z) | (term[1] & ~x & ~y & z) | (term[2] & ~x & y & ~z) | (term[3] & ~x & y & z) |
           (term[4] & x & ~y & ~z) | (term[5] & x & ~y & z) | (term[6] & x & y & ~z) | (term[7] & x & y & z);
  }
}

i32 med3(i32 a, i32 b, i32 c) {
  const i32 lo = a < b ? a : b, hi = a < b ? b : a;
  return c < lo ? lo : c > hi ? hi : c;
}
u32 med3(u32 a, u32 b, u32 c) {
  const u32 lo = a < b ? a : b, hi = a < b ? b : a;
  return c < lo ? lo : c > hi ? hi : c;
}

constexpr auto min_i = [](i32 a, i32 b) -> i32 { return a < b ? a : b; };
constexpr auto max_i = [](i32 a, i32 b) -> i32 { return a > b ? a : b; };
constexpr auto min_u = [](u32 a, u32 b) -> u32 { return a < b ? a : b; };
constexpr auto max_u = [](u32 a, u32 b) -> u32 { return a > b ? a : b; };

constexpr AluOp kTable[] = {
    op_clamp<[](u32 a, u32 b) -> u32 { return a + b; }, [](u32 a, u32 b) -> u32 { return sat_add(a, b); }>("v_add_u32"),
    op_clamp<[](u32 a, u32 b) -> u32 { return a - b; }, [](u32 a, u32 b) -> u32 { return sat_sub(a, b); }>("v_sub_u32"),
    op_clamp<[](u32 a, u32 b) -> u32 { return b - a; }, [](u32 a, u32 b) -> u32 { return sat_sub(b, a); }>("v_subrev_u32"),
    op_clamp<[](u32 a, u32 b) -> u32 { return a + b; },
             [](u32 a, u32 b) -> u32 {
               return static_cast<u32>(sat_i32(i64{static_cast<i32>(a)} + static_cast<i32>(b)));
             }>("v_add_i32"),
    op_clamp<[](u32 a, u32 b) -> u32 { return a - b; },
             [](u32 a, u32 b) -> u32 {
               return static_cast<u32>(sat_i32(i64{static_cast<i32>(a)} - static_cast<i32>(b)));
             }>("v_sub_i32"),
    custom("v_add_co_u32", carry<false, false, false>, Kind::u32, {Kind::u32, Kind::u32}, kMaskDst),
    custom("v_sub_co_u32", carry<false, true, false>, Kind::u32, {Kind::u32, Kind::u32}, kMaskDst),
    custom("v_subrev_co_u32", carry<false, true, true>, Kind::u32, {Kind::u32, Kind::u32}, kMaskDst),
    custom("v_addc_co_u32", carry<true, false, false>, Kind::u32, {Kind::u32, Kind::u32}, kMaskDst | kMaskSrc),
    custom("v_subb_co_u32", carry<true, true, false>, Kind::u32, {Kind::u32, Kind::u32}, kMaskDst | kMaskSrc),
    custom("v_subbrev_co_u32", carry<true, true, true>, Kind::u32, {Kind::u32, Kind::u32}, kMaskDst | kMaskSrc),
    custom("v_mad_u64_u32", mad64<false>, Kind::u64, {Kind::u32, Kind::u32, Kind::u64}, kMaskDst),
    custom("v_mad_i64_i32", mad64<true>, Kind::i64, {Kind::i32, Kind::i32, Kind::i64}, kMaskDst),
    op<[](u32 a, u32 b, u32 c) -> u32 { return a + b + c; }>("v_add3_u32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return (a + b) << (c & 31); }>("v_add_lshl_u32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return (a << (b & 31)) + c; }>("v_lshl_add_u32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return (a << (b & 31)) | c; }>("v_lshl_or_b32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return (a & b) | c; }>("v_and_or_b32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return a | b | c; }>("v_or3_b32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return (a ^ b) + c; }>("v_xad_u32"),
    op<[](u32 a, u32 b) -> u32 { return a & b; }>("v_and_b32"),
    op<[](u32 a, u32 b) -> u32 { return a | b; }>("v_or_b32"),
    op<[](u32 a, u32 b) -> u32 { return a ^ b; }>("v_xor_b32"),
    op<[](u32 a, u32 b) -> u32 { return ~(a ^ b); }>("v_xnor_b32"),
    op<[](u32 a) -> u32 { return ~a; }>("v_not_b32"),
    op<[](u32 a) -> u32 { return bfrev(a); }>("v_bfrev_b32"),
    op<[](u32 a) -> u32 { return ffbh(a); }>("v_ffbh_u32"),
    op<[](u32 a) -> u32 { return ffbl(a); }>("v_ffbl_b32"),
    op<[](i32 a) -> u32 { return ffbh_i32(a); }>("v_ffbh_i32"),
    op<[](u32 a, u32 b) -> u32 { return b << (a & 31); }>("v_lshlrev_b32"),
    op<[](u32 a, u32 b) -> u32 { return shr(b, a & 31); }>("v_lshrrev_b32"),
    op<[](u32 a, i32 b) -> i32 { return shr(b, a & 31); }>("v_ashrrev_i32"),
    op<[](u32 a, u64 b) -> u64 { return b << (a & 63); }>("v_lshlrev_b64"),
    op<[](u32 a, u64 b) -> u64 { return shr(b, a & 63); }>("v_lshrrev_b64"),
    op<[](u32 a, i64 b) -> i64 { return shr(b, a & 63); }>("v_ashrrev_i64"),
    op<[](u64 a, u32 b, u64 c) -> u64 { return (a << (b & 7)) + c; }>("v_lshl_add_u64"),
    op<[](u32 a, u32 b) -> u32 { return a * b; }>("v_mul_lo_u32"),
    op<[](u32 a, u32 b) -> u32 { return static_cast<u32>(shr(u64{a} * b, 32)); }>("v_mul_hi_u32"),
    op<[](i32 a, i32 b) -> i32 { return static_cast<i32>(shr(i64{a} * b, 32)); }>("v_mul_hi_i32"),
    op_clamp<[](i32 a, i32 b) -> u32 { return static_cast<u32>(sext24(a)) * static_cast<u32>(sext24(b)); },
             [](i32 a, i32 b) -> u32 { return static_cast<u32>(sat_i32(i64{sext24(a)} * sext24(b))); }>("v_mul_i32_i24"),
    op<[](i32 a, i32 b) -> i32 { return static_cast<i32>(shr(i64{sext24(a)} * sext24(b), 32)); }>("v_mul_hi_i32_i24"),
    op_clamp<[](u32 a, u32 b) -> u32 { return (a & 0xffffffu) * (b & 0xffffffu); },
             [](u32 a, u32 b) -> u32 { return sat_u32(u64{a & 0xffffffu} * (b & 0xffffffu)); }>("v_mul_u32_u24"),
    op<[](u32 a, u32 b) -> u32 { return static_cast<u32>(shr(u64{a & 0xffffffu} * (b & 0xffffffu), 32)); }>("v_mul_hi_u32_u24"),
    op_clamp<[](i32 a, i32 b, u32 c) -> u32 { return static_cast<u32>(sext24(a)) * static_cast<u32>(sext24(b)) + c; },
             [](i32 a, i32 b, u32 c) -> u32 {
               return static_cast<u32>(sat_i32(i64{sext24(a)} * sext24(b) + static_cast<i32>(c)));
             }>("v_mad_i32_i24"),
    op_clamp<[](u32 a, u32 b, u32 c) -> u32 { return (a & 0xffffffu) * (b & 0xffffffu) + c; },
             [](u32 a, u32 b, u32 c) -> u32 { return sat_u32(u64{a & 0xffffffu} * (b & 0xffffffu) + c); }>("v_mad_u32_u24"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return bfe_u32(a, b, c); }>("v_bfe_u32"),
    op<[](i32 a, u32 b, u32 c) -> i32 { return bfe_i32(a, b, c); }>("v_bfe_i32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return (a & b) | (~a & c); }>("v_bfi_b32"),
    op<[](u32 a, u32 b) -> u32 { return ((1u << (a & 31)) - 1u) << (b & 31); }>("v_bfm_b32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return static_cast<u32>(shr(u64{a} << 32 | b, c & 31)); }>("v_alignbit_b32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return static_cast<u32>(shr(u64{a} << 32 | b, 8 * (c & 3))); }>("v_alignbyte_b32"),
    custom("v_perm_b32", perm, Kind::b32, {Kind::b32, Kind::b32, Kind::b32}),
    op<[](u32 a, u32 b) -> u32 { return popcount(a) + b; }>("v_bcnt_u32_b32"),
    custom("v_mbcnt_lo_u32_b32", mbcnt<0>, Kind::u32, {Kind::u32, Kind::u32}, kCross),
    custom("v_mbcnt_hi_u32_b32", mbcnt<32>, Kind::u32, {Kind::u32, Kind::u32}, kCross),
    custom("v_bitop3_b32", bitop3_b32, Kind::b32, {Kind::b32, Kind::b32, Kind::b32}),
    op<min_i>("v_min_i32"),
    op<max_i>("v_max_i32"),
    op<min_u>("v_min_u32"),
    op<max_u>("v_max_u32"),
    op<[](i32 a, i32 b, i32 c) -> i32 { return min_i(min_i(a, b), c); }>("v_min3_i32"),
    op<[](i32 a, i32 b, i32 c) -> i32 { return max_i(max_i(a, b), c); }>("v_max3_i32"),
    op<[](i32 a, i32 b, i32 c) -> i32 { return med3(a, b, c); }>("v_med3_i32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return min_u(min_u(a, b), c); }>("v_min3_u32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return max_u(max_u(a, b), c); }>("v_max3_u32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return med3(a, b, c); }>("v_med3_u32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return sad(a, b, 8, false) + c; }>("v_sad_u8"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return (sad(a, b, 8, false) << 16) + c; }>("v_sad_hi_u8"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return sad(a, b, 16, false) + c; }>("v_sad_u16"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return sad(a, b, 32, false) + c; }>("v_sad_u32"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return sad(a, b, 8, true) + c; }>("v_msad_u8"),
    op<[](u64 a, u32 b, u64 c) -> u64 { return qsad(a, b, c, false); }>("v_qsad_pk_u16_u8"),
    op<[](u64 a, u32 b, u64 c) -> u64 { return qsad(a, b, c, true); }>("v_mqsad_pk_u16_u8"),
    op<[](u32 a, u32 b, u32 c) -> u32 { return lerp_u8(a, b, c); }>("v_lerp_u8"),
    op<[](i32 a, i32 b, u32 c) -> u16 { return ashr_pk<-128, 127>(a, b, c); }>("v_ashr_pk_i8_i32"),
    op<[](i32 a, i32 b, u32 c) -> u16 { return ashr_pk<0, 255>(a, b, c); }>("v_ashr_pk_u8_i32"),
    // CDNA4 ISA document: one step of a shift register with the taps 0xc5.
    op<[](u32 a) -> u32 { return (a << 1) ^ (shr(a, 31) ? 197u : 0u); }>("v_prng_b32"),
};

}  // namespace

std::span<const AluOp> table_int() { return kTable; }

}  // namespace monoc::sim::alu::MONOC_ALU_NS
