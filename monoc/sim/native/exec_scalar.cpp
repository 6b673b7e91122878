// Scalar ALU. Semantics: AMD CDNA3 ISA, chapters "SOP2" to "SOPP"; carry and SCC rules as listed there per opcode.
#include <bit>

#include "scalar_util.hpp"

namespace monoc::sim {
namespace {

#define SOP2_32(NAME, EXPR, SCC)                          \
  void NAME(Wave& w, const Op& op) {                      \
    uint32_t a = read32(w, op.src[0]), b = read32(w, op.src[1]); \
    uint32_t d = (EXPR);                                  \
    SCC;                                                  \
    w.sgpr[op.dst] = d;                                   \
  }
#define SOP2_64(NAME, EXPR, SCC)                          \
  void NAME(Wave& w, const Op& op) {                      \
    uint64_t a = read64(w, op.src[0]), b = read64(w, op.src[1]); \
    uint64_t d = (EXPR);                                  \
    SCC;                                                  \
    w.write64(op.dst, d);                                 \
  }
#define SOP1_32(NAME, EXPR, SCC)          \
  void NAME(Wave& w, const Op& op) {      \
    uint32_t a = read32(w, op.src[0]);    \
    uint32_t d = (EXPR);                  \
    SCC;                                  \
    w.sgpr[op.dst] = d;                   \
  }
#define SOP1_64(NAME, EXPR, SCC)          \
  void NAME(Wave& w, const Op& op) {      \
    uint64_t a = read64(w, op.src[0]);    \
    uint64_t d = (EXPR);                  \
    SCC;                                  \
    w.write64(op.dst, d);                 \
  }
// 64-bit source, 32-bit result.
#define SOP1_64_32(NAME, EXPR, SCC)       \
  void NAME(Wave& w, const Op& op) {      \
    uint64_t a = read64(w, op.src[0]);    \
    uint32_t d = (EXPR);                  \
    SCC;                                  \
    w.sgpr[op.dst] = d;                   \
  }
#define NZ w.scc = d != 0
#define KEEP (void)0

int32_t s(uint32_t v) { return static_cast<int32_t>(v); }
bool add_overflow(uint32_t a, uint32_t b, uint32_t d) { return s(~(a ^ b) & (a ^ d)) < 0; }
bool sub_overflow(uint32_t a, uint32_t b, uint32_t d) { return s((a ^ b) & (a ^ d)) < 0; }

SOP2_32(s_add_u32, a + b, w.scc = d < a)
SOP2_32(s_sub_u32, a - b, w.scc = b > a)
SOP2_32(s_add_i32, a + b, w.scc = add_overflow(a, b, d))
SOP2_32(s_sub_i32, a - b, w.scc = sub_overflow(a, b, d))
SOP2_32(s_addc_u32, a + b + w.scc, w.scc = (uint64_t(a) + b + w.scc) >> 32)
SOP2_32(s_subb_u32, a - b - w.scc, w.scc = (uint64_t(b) + w.scc) > a)
SOP2_32(s_min_i32, s(a) < s(b) ? a : b, w.scc = s(a) < s(b))
SOP2_32(s_min_u32, a < b ? a : b, w.scc = a < b)
SOP2_32(s_max_i32, s(a) > s(b) ? a : b, w.scc = s(a) > s(b))
SOP2_32(s_max_u32, a > b ? a : b, w.scc = a > b)
SOP2_32(s_cselect_b32, w.scc ? a : b, KEEP)
SOP2_64(s_cselect_b64, w.scc ? a : b, KEEP)
SOP2_32(s_and_b32, a & b, NZ)
SOP2_64(s_and_b64, a & b, NZ)
SOP2_32(s_or_b32, a | b, NZ)
SOP2_64(s_or_b64, a | b, NZ)
SOP2_32(s_xor_b32, a ^ b, NZ)
SOP2_64(s_xor_b64, a ^ b, NZ)
SOP2_32(s_andn2_b32, a & ~b, NZ)
SOP2_64(s_andn2_b64, a & ~b, NZ)
SOP2_32(s_orn2_b32, a | ~b, NZ)
SOP2_64(s_orn2_b64, a | ~b, NZ)
SOP2_32(s_nand_b32, ~(a & b), NZ)
SOP2_64(s_nand_b64, ~(a & b), NZ)
SOP2_32(s_nor_b32, ~(a | b), NZ)
SOP2_64(s_nor_b64, ~(a | b), NZ)
SOP2_32(s_xnor_b32, ~(a ^ b), NZ)
SOP2_64(s_xnor_b64, ~(a ^ b), NZ)
SOP2_32(s_lshl_b32, a << (b & 31), NZ)
SOP2_32(s_lshr_b32, a >> (b & 31), NZ)
SOP2_32(s_ashr_i32, uint32_t(s(a) >> (b & 31)), NZ)
#define SHIFT_64(NAME, EXPR)                                          \
  void NAME(Wave& w, const Op& op) {                                  \
    uint64_t a = read64(w, op.src[0]);                                \
    uint32_t b = read32(w, op.src[1]) & 63;                           \
    uint64_t d = (EXPR);                                              \
    w.scc = d != 0;                                                   \
    w.write64(op.dst, d);                                             \
  }
SHIFT_64(s_lshl_b64, a << b)
SHIFT_64(s_lshr_b64, a >> b)
SHIFT_64(s_ashr_i64, uint64_t(int64_t(a) >> b))
SOP2_32(s_bfm_b32, ((1u << (a & 31)) - 1) << (b & 31), KEEP)
void s_bfm_b64(Wave& w, const Op& op) {
  uint32_t a = read32(w, op.src[0]) & 63, b = read32(w, op.src[1]) & 63;
  w.write64(op.dst, ((1ull << a) - 1) << b);
}
SOP2_32(s_mul_i32, a* b, KEEP)
SOP2_32(s_mul_hi_u32, uint32_t((uint64_t(a) * b) >> 32), KEEP)
SOP2_32(s_mul_hi_i32, uint32_t((int64_t(s(a)) * s(b)) >> 32), KEEP)
SOP2_32(s_absdiff_i32, uint32_t(s(a - b) < 0 ? b - a : a - b), NZ)
SOP2_32(s_lshl1_add_u32, (a << 1) + b, w.scc = ((uint64_t(a) << 1) + b) >> 32 != 0)
SOP2_32(s_lshl2_add_u32, (a << 2) + b, w.scc = ((uint64_t(a) << 2) + b) >> 32 != 0)
SOP2_32(s_lshl3_add_u32, (a << 3) + b, w.scc = ((uint64_t(a) << 3) + b) >> 32 != 0)
SOP2_32(s_lshl4_add_u32, (a << 4) + b, w.scc = ((uint64_t(a) << 4) + b) >> 32 != 0)
SOP2_32(s_pack_ll_b32_b16, (a & 0xffff) | b << 16, KEEP)
SOP2_32(s_pack_lh_b32_b16, (a & 0xffff) | (b & 0xffff0000), KEEP)
SOP2_32(s_pack_hh_b32_b16, a >> 16 | (b & 0xffff0000), KEEP)

// Bit field: offset in [4:0] (64 bits: [5:0]), width in [22:16]; a width of 0 gives 0.
uint64_t field(uint64_t a, unsigned offset, unsigned width) {
  uint64_t v = a >> offset;
  return width >= 64 ? v : v & ((1ull << width) - 1);
}
int64_t field_signed(int64_t a, unsigned bits, unsigned offset, unsigned width) {
  if (width == 0) return 0;
  if (offset + width >= bits) return a >> offset;
  uint64_t v = field(uint64_t(a), offset, width);
  return int64_t(v << (64 - width)) >> (64 - width);
}
SOP2_32(s_bfe_u32, uint32_t(field(a, b & 31, b >> 16 & 0x7f)), NZ)
SOP2_32(s_bfe_i32, uint32_t(field_signed(s(a), 32, b & 31, b >> 16 & 0x7f)), NZ)
void s_bfe_u64(Wave& w, const Op& op) {
  uint64_t a = read64(w, op.src[0]);
  uint32_t b = read32(w, op.src[1]);
  uint64_t d = field(a, b & 63, b >> 16 & 0x7f);
  w.scc = d != 0;
  w.write64(op.dst, d);
}
void s_bfe_i64(Wave& w, const Op& op) {
  uint64_t a = read64(w, op.src[0]);
  uint32_t b = read32(w, op.src[1]);
  uint64_t d = uint64_t(field_signed(int64_t(a), 64, b & 63, b >> 16 & 0x7f));
  w.scc = d != 0;
  w.write64(op.dst, d);
}

SOP1_32(s_mov_b32, a, KEEP)
SOP1_64(s_mov_b64, a, KEEP)
SOP1_32(s_not_b32, ~a, NZ)
SOP1_64(s_not_b64, ~a, NZ)
uint64_t wqm(uint64_t a) {
  uint64_t any = (a | a >> 1 | a >> 2 | a >> 3) & 0x1111111111111111ull;
  return any * 15;
}
SOP1_32(s_wqm_b32, uint32_t(wqm(a)), NZ)
SOP1_64(s_wqm_b64, wqm(a), NZ)
uint32_t reverse(uint32_t a) {
  uint32_t d = 0;
  for (int i = 0; i < 32; ++i) d |= (a >> i & 1) << (31 - i);
  return d;
}
SOP1_32(s_brev_b32, reverse(a), KEEP)
SOP1_64(s_brev_b64, uint64_t(reverse(uint32_t(a))) << 32 | reverse(uint32_t(a >> 32)), KEEP)
SOP1_32(s_bcnt0_i32_b32, uint32_t(32 - std::popcount(a)), NZ)
SOP1_32(s_bcnt1_i32_b32, uint32_t(std::popcount(a)), NZ)
SOP1_64_32(s_bcnt0_i32_b64, uint32_t(64 - std::popcount(a)), NZ)
SOP1_64_32(s_bcnt1_i32_b64, uint32_t(std::popcount(a)), NZ)
// Searches give -1 when nothing is found.
SOP1_32(s_ff1_i32_b32, a ? uint32_t(std::countr_zero(a)) : ~0u, KEEP)
SOP1_32(s_ff0_i32_b32, ~a ? uint32_t(std::countr_zero(~a)) : ~0u, KEEP)
SOP1_64_32(s_ff1_i32_b64, a ? uint32_t(std::countr_zero(a)) : ~0u, KEEP)
SOP1_64_32(s_ff0_i32_b64, ~a ? uint32_t(std::countr_zero(~a)) : ~0u, KEEP)
SOP1_32(s_flbit_i32_b32, a ? uint32_t(std::countl_zero(a)) : ~0u, KEEP)
SOP1_64_32(s_flbit_i32_b64, a ? uint32_t(std::countl_zero(a)) : ~0u, KEEP)
// The signed forms count the bits equal to the sign before the first that differs.
SOP1_32(s_flbit_i32, (a ^ (s(a) < 0 ? ~0u : 0)) ? uint32_t(std::countl_zero(a ^ (s(a) < 0 ? ~0u : 0))) : ~0u, KEEP)
SOP1_64_32(s_flbit_i32_i64,
           (a ^ (int64_t(a) < 0 ? ~0ull : 0)) ? uint32_t(std::countl_zero(a ^ (int64_t(a) < 0 ? ~0ull : 0))) : ~0u, KEEP)
SOP1_32(s_sext_i32_i8, uint32_t(int32_t(int8_t(a))), KEEP)
SOP1_32(s_sext_i32_i16, uint32_t(int32_t(int16_t(a))), KEEP)
SOP1_32(s_abs_i32, s(a) < 0 ? 0u - a : a, NZ)
SOP1_32(s_quadmask_b32, [&] {
  uint32_t m = 0;
  for (int i = 0; i < 8; ++i) m |= uint32_t((a >> (4 * i) & 15) != 0) << i;
  return m;
}(), NZ)
SOP1_64(s_quadmask_b64, [&] {
  uint64_t m = 0;
  for (int i = 0; i < 16; ++i) m |= uint64_t((a >> (4 * i) & 15) != 0) << i;
  return m;
}(), NZ)
void s_bitreplicate_b64_b32(Wave& w, const Op& op) {
  uint32_t a = read32(w, op.src[0]);
  uint64_t d = 0;
  for (int i = 0; i < 32; ++i) d |= uint64_t(a >> i & 1) * 3 << (2 * i);
  w.write64(op.dst, d);
}
void s_cmov_b32(Wave& w, const Op& op) {
  if (w.scc) w.sgpr[op.dst] = read32(w, op.src[0]);
}
void s_cmov_b64(Wave& w, const Op& op) {
  if (w.scc) w.write64(op.dst, read64(w, op.src[0]));
}
void s_bitset0_b32(Wave& w, const Op& op) { w.sgpr[op.dst] &= ~(1u << (read32(w, op.src[0]) & 31)); }
void s_bitset1_b32(Wave& w, const Op& op) { w.sgpr[op.dst] |= 1u << (read32(w, op.src[0]) & 31); }
void s_bitset0_b64(Wave& w, const Op& op) {
  w.write64(op.dst, w.read64(op.dst) & ~(1ull << (read32(w, op.src[0]) & 63)));
}
void s_bitset1_b64(Wave& w, const Op& op) {
  w.write64(op.dst, w.read64(op.dst) | 1ull << (read32(w, op.src[0]) & 63));
}

#define SAVEEXEC(NAME, EXPR)                              \
  void NAME(Wave& w, const Op& op) {                      \
    uint64_t a = read64(w, op.src[0]), e = w.exec();      \
    uint64_t d = (EXPR);                                  \
    w.write64(op.dst, e);                                 \
    w.exec() = d;                                         \
    w.scc = d != 0;                                       \
  }
SAVEEXEC(s_and_saveexec_b64, a & e)
SAVEEXEC(s_or_saveexec_b64, a | e)
SAVEEXEC(s_xor_saveexec_b64, a ^ e)
SAVEEXEC(s_andn2_saveexec_b64, a & ~e)
SAVEEXEC(s_orn2_saveexec_b64, a | ~e)
SAVEEXEC(s_nand_saveexec_b64, ~(a & e))
SAVEEXEC(s_nor_saveexec_b64, ~(a | e))
SAVEEXEC(s_xnor_saveexec_b64, ~(a ^ e))
SAVEEXEC(s_andn1_saveexec_b64, ~a & e)
SAVEEXEC(s_orn1_saveexec_b64, ~a | e)
#define WREXEC(NAME, EXPR)                                \
  void NAME(Wave& w, const Op& op) {                      \
    uint64_t a = read64(w, op.src[0]), e = w.exec();      \
    uint64_t d = (EXPR);                                  \
    w.exec() = d;                                         \
    w.write64(op.dst, d);                                 \
    w.scc = d != 0;                                       \
  }
WREXEC(s_andn1_wrexec_b64, ~a & e)
WREXEC(s_andn2_wrexec_b64, a & ~e)

#define SOPC(NAME, EXPR)                                          \
  void NAME(Wave& w, const Op& op) {                              \
    uint32_t a = read32(w, op.src[0]), b = read32(w, op.src[1]);  \
    w.scc = (EXPR);                                               \
  }
#define COMPARES(OPNAME, OPERATOR)                  \
  SOPC(s_cmp_##OPNAME##_i32, s(a) OPERATOR s(b))    \
  SOPC(s_cmp_##OPNAME##_u32, a OPERATOR b)
COMPARES(eq, ==)
COMPARES(lg, !=)
COMPARES(gt, >)
COMPARES(ge, >=)
COMPARES(lt, <)
COMPARES(le, <=)
SOPC(s_bitcmp0_b32, (a >> (b & 31) & 1) == 0)
SOPC(s_bitcmp1_b32, (a >> (b & 31) & 1) == 1)
void s_cmp_eq_u64(Wave& w, const Op& op) { w.scc = read64(w, op.src[0]) == read64(w, op.src[1]); }
void s_cmp_lg_u64(Wave& w, const Op& op) { w.scc = read64(w, op.src[0]) != read64(w, op.src[1]); }
void s_bitcmp0_b64(Wave& w, const Op& op) { w.scc = (read64(w, op.src[0]) >> (read32(w, op.src[1]) & 63) & 1) == 0; }
void s_bitcmp1_b64(Wave& w, const Op& op) { w.scc = (read64(w, op.src[0]) >> (read32(w, op.src[1]) & 63) & 1) == 1; }

// SOPK: the decoder puts the extended 16-bit immediate into src[1] (compares, add, mul) or src[0] (moves).
void s_addk_i32(Wave& w, const Op& op) {
  uint32_t a = w.sgpr[op.dst], b = uint32_t(op.imm), d = a + b;
  w.scc = add_overflow(a, b, d);
  w.sgpr[op.dst] = d;
}
void s_mulk_i32(Wave& w, const Op& op) { w.sgpr[op.dst] *= uint32_t(op.imm); }
void s_movk_i32(Wave& w, const Op& op) { w.sgpr[op.dst] = uint32_t(op.imm); }
void s_cmovk_i32(Wave& w, const Op& op) {
  if (w.scc) w.sgpr[op.dst] = uint32_t(op.imm);
}

#define E(NAME) {#NAME, NAME}
const HandlerEntry kScalar[] = {
    E(s_add_u32), E(s_sub_u32), E(s_add_i32), E(s_sub_i32), E(s_addc_u32), E(s_subb_u32), E(s_min_i32), E(s_min_u32),
    E(s_max_i32), E(s_max_u32), E(s_cselect_b32), E(s_cselect_b64), E(s_and_b32), E(s_and_b64), E(s_or_b32), E(s_or_b64),
    E(s_xor_b32), E(s_xor_b64), E(s_andn2_b32), E(s_andn2_b64), E(s_orn2_b32), E(s_orn2_b64), E(s_nand_b32),
    E(s_nand_b64), E(s_nor_b32), E(s_nor_b64), E(s_xnor_b32), E(s_xnor_b64), E(s_lshl_b32), E(s_lshr_b32), E(s_ashr_i32),
    E(s_lshl_b64), E(s_lshr_b64), E(s_ashr_i64), E(s_bfm_b32), E(s_bfm_b64), E(s_mul_i32), E(s_mul_hi_u32),
    E(s_mul_hi_i32), E(s_absdiff_i32), E(s_lshl1_add_u32), E(s_lshl2_add_u32), E(s_lshl3_add_u32), E(s_lshl4_add_u32),
    E(s_pack_ll_b32_b16), E(s_pack_lh_b32_b16), E(s_pack_hh_b32_b16), E(s_bfe_u32), E(s_bfe_i32), E(s_bfe_u64),
    E(s_bfe_i64), E(s_mov_b32), E(s_mov_b64), E(s_not_b32), E(s_not_b64), E(s_wqm_b32), E(s_wqm_b64), E(s_brev_b32),
    E(s_brev_b64), E(s_bcnt0_i32_b32), E(s_bcnt1_i32_b32), E(s_bcnt0_i32_b64), E(s_bcnt1_i32_b64), E(s_ff1_i32_b32),
    E(s_ff0_i32_b32), E(s_ff1_i32_b64), E(s_ff0_i32_b64), E(s_flbit_i32_b32), E(s_flbit_i32_b64), E(s_flbit_i32),
    E(s_flbit_i32_i64), E(s_sext_i32_i8), E(s_sext_i32_i16), E(s_abs_i32), E(s_quadmask_b32), E(s_quadmask_b64),
    E(s_bitreplicate_b64_b32), E(s_cmov_b32), E(s_cmov_b64), E(s_bitset0_b32), E(s_bitset1_b32), E(s_bitset0_b64),
    E(s_bitset1_b64), E(s_and_saveexec_b64), E(s_or_saveexec_b64), E(s_xor_saveexec_b64), E(s_andn2_saveexec_b64),
    E(s_orn2_saveexec_b64), E(s_nand_saveexec_b64), E(s_nor_saveexec_b64), E(s_xnor_saveexec_b64),
    E(s_andn1_saveexec_b64), E(s_orn1_saveexec_b64), E(s_andn1_wrexec_b64), E(s_andn2_wrexec_b64), E(s_cmp_eq_i32),
    E(s_cmp_eq_u32), E(s_cmp_lg_i32), E(s_cmp_lg_u32), E(s_cmp_gt_i32), E(s_cmp_gt_u32), E(s_cmp_ge_i32),
    E(s_cmp_ge_u32), E(s_cmp_lt_i32), E(s_cmp_lt_u32), E(s_cmp_le_i32), E(s_cmp_le_u32), E(s_bitcmp0_b32),
    E(s_bitcmp1_b32), E(s_bitcmp0_b64), E(s_bitcmp1_b64), E(s_cmp_eq_u64), E(s_cmp_lg_u64), E(s_addk_i32),
    E(s_mulk_i32), E(s_movk_i32), E(s_cmovk_i32),
};

}  // namespace

std::span<const HandlerEntry> scalar_handlers() { return kScalar; }

}  // namespace monoc::sim
