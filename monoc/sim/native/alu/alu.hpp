// Semantics of the vector ALU, conversion, permlane-swap and MFMA instructions as pure functions over the 64 lanes of
// a wave: the contract between the interpreter (operand fetch, EXEC, DPP, SDWA) and monoc/sim/native/alu/.
//
// An operand of n dwords is n consecutive `Lanes`, the low dword first, as in the register file. A function computes all
// 64 lanes and ignores EXEC: the interpreter masks the write-back and ANDs `mask_out` with EXEC. A destination may be
// the very register a source is (each lane is read before it is written), but may not overlap a source otherwise,
// except for MFMA, which reads all its operands first.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace monoc::sim::alu {

struct alignas(64) Lanes {
  uint32_t v[64];
};

// Type of an operand: how many dwords it takes, how an inline constant is materialised and what abs / neg / omod / clamp
// mean for it. Half-word kinds live in bits 15:0 of the register. Constants: an integer inline constant is its value
// (sign-extended to the kind's width), 0.5/1.0/2.0/4.0/1/(2 pi) is that number in the format of the kind (f32 encoding
// for b32/i32/u32; pk_*16: f16 / bf16 / f32-in-a-dword, low half, the high half is what op_sel_hi finds there); pk_f32 and
// pk_b32 hold the same value in both dwords.
enum class Kind : uint8_t {
  none,
  b16, i16, u16, f16, bf16,
  b32, i32, u32, f32,
  b64, i64, u64, f64,
  pk_b16,   // two integer half-words
  pk_f16,   // two f16
  pk_bf16,  // two bf16
  pk_f32,   // two dwords of f32
  pk_b32,   // two dwords (v_pk_mov_b32)
  mat,      // MFMA operand of AluOp::src_dwords / dst_dwords dwords; inline constants are f32 (i32, f64) by `dst`'s type,
            // the same in every dword (every register pair for f64)
};

// Modifiers of one instruction, fixed at decode time.
struct AluMods {
  uint8_t op_sel = 0;     // bit i: source i; bit 3: destination. (Text `op_sel:[a,b,d]` with one entry more than there are
                          // sources: the last one is the destination's.)
  uint8_t op_sel_hi = 7;  // bit i: source i; absent in the text = all ones for VOP3P, zero for v_fma_mix*/v_mad_mix*
                          // and scaled MFMA (AluOp::op_sel_hi_default).
  uint8_t neg_lo = 0;     // VOP3P: negate the low half of source i. v_fma_mix*: neg (the text prints neg_lo or -x)
  uint8_t neg_hi = 0;     // VOP3P: negate the high half of source i. v_fma_mix*: abs
  uint8_t cbsz = 0;       // MFMA; f8f6f4: format of A
  uint8_t abid = 0;       // MFMA
  uint8_t blgp = 0;       // MFMA; f8f6f4: format of B
  uint8_t bitop3 = 0;     // v_bitop3_*: truth table
  bool clamp = false;     // integer and packed ops saturate by themselves; for float kinds see store_float_mods
  uint8_t omod = 0;       // 0 none, 1 mul:2, 2 mul:4, 3 div:2; see store_float_mods
};

// MODE register bits as s_setreg writes them: [3:0] rounding (only round-to-nearest-even, 0, is modelled: refuse others),
// [5:4] denormals f32, [7:6] denormals f64/f16 (3 = allow), bit 8 DX10_CLAMP, bit 9 IEEE.
inline constexpr uint32_t kModeRoundMask = 0x0f;
inline constexpr uint32_t kModeDefault = 0x3f0;

struct AluCtx {
  const AluMods* mods;
  uint64_t mask_in = 0;   // carry in, v_cndmask select, VCC of v_div_fmas
  uint64_t mask_out = 0;  // carry out, compare result, v_div_scale flag: one bit a lane, all 64 lanes
  uint32_t mode = kModeDefault;
};

using AluFn = void (*)(Lanes* dst, const Lanes* const* src, AluCtx& ctx);

enum AluFlag : uint32_t {
  kMaskDst = 1u << 0,      // writes a lane mask: the only destination of a compare, else the text's second (v_add_co_u32)
  kMaskSrc = 1u << 1,      // reads a lane mask: the text's operand behind the vector sources (v_cndmask_b32, v_addc_co_u32)
  kMaskSrcVcc = 1u << 2,   // reads VCC without naming it (v_div_fmas_*)
  kWritesExec = 1u << 3,   // v_cmpx_*: the mask also goes to EXEC
  kReadsDst = 1u << 4,     // on entry dst holds the destination's old value (v_fmac_*, half-register writes)
  kSwap = 1u << 5,         // two registers, both read and written: src[0], src[1] are the old ones, dst[0], dst[1] the new
  kMfma = 1u << 6,         // ignores EXEC: write all lanes
  kScaled = 1u << 7,       // scaled MFMA: src[3], src[4] are the scale registers (one dword each)
  kOpSelHiZero = 1u << 8,  // op_sel_hi absent in the text means 0, not all ones
  kPacked = 1u << 9,       // VOP3P: neg_lo / neg_hi / op_sel / clamp are handled by fn; never apply the float helpers
  kTrans = 1u << 10,       // transcendental (for counting)
  kCross = 1u << 11,       // a lane's result depends on other lanes: no DPP, no lane-by-lane poison
  kModsF32 = 1u << 12,     // v_cndmask_b32: bit kind, but abs / neg act as on f32
};

struct AluOp {
  const char* mnemonic;  // without _e32 / _e64 / _dpp / _sdwa
  AluFn fn;
  Kind dst;              // none for compares (only a mask)
  uint8_t nsrc;          // vector sources in text order; v_fmac-like accumulators are not counted (kReadsDst)
  Kind src[5];
  uint8_t dst_dwords;
  uint8_t src_dwords[5];  // f8f6f4: the widest (8); see mfma_src_dwords
  uint32_t flags;
  uint32_t mfma_macs = 0;  // multiply-adds a wave executes, 0 for the rest
};

// The op of a mnemonic (an encoding suffix is ignored), in the build for this CPU; nullptr if there is none. Thread safe.
const AluOp* find_alu(std::string_view mnemonic);

// Every op of the build for this CPU, sorted by mnemonic (to suggest the nearest known form, and for tests).
std::span<const AluOp> all_alu();

// Name of the build in use: "avx512", "avx2" or "baseline". use_isa selects another one for tests (false: not available here).
const char* alu_isa();
bool use_isa(std::string_view name);

// Dwords that source i of an MFMA really has: for f8f6f4 8 (fp8, bf8), 6 (fp6, bf6) or 4 (fp4) by cbsz (A) and blgp (B).
int mfma_src_dwords(const AluOp& op, const AluMods& mods, int source);

// dst = modified src for a float kind (f16, bf16, f32, f64; kModsF32 ops: pass Kind::f32): abs first, then neg. dst may be
// src. op_sel of half-word sources is the op's own business (abs / neg act on both halves).
void load_float_mods(Kind kind, Lanes* dst, const Lanes* src, bool abs, bool neg);

// Applies omod (f16, f32, f64), then clamp to [0, 1] (NaN becomes 0 with DX10_CLAMP) to a result in place.
void store_float_mods(Kind kind, Lanes* dst, uint8_t omod, bool clamp, uint32_t mode);

// Flush denormals to signed zero in place (f16, f32, f64): for sources and results when MODE asks for it.
void flush_denormals(Kind kind, Lanes* value);

// True if MODE asks to flush denormals of this kind (then wrap fn in flush_denormals: slow path).
inline bool flushes(Kind kind, uint32_t mode) {
  switch (kind) {
    case Kind::f32:
    case Kind::pk_f32:
      return ((mode >> 4) & 3) != 3;
    case Kind::f16:
    case Kind::f64:
    case Kind::pk_f16:
      return ((mode >> 6) & 3) != 3;
    default:
      return false;
  }
}

constexpr int dwords(Kind kind) {
  switch (kind) {
    case Kind::none:
    case Kind::mat:
      return 0;
    case Kind::b64:
    case Kind::i64:
    case Kind::u64:
    case Kind::f64:
    case Kind::pk_f32:
    case Kind::pk_b32:
      return 2;
    default:
      return 1;
  }
}

}  // namespace monoc::sim::alu
