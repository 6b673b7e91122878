// Decoded instructions: what the interpreter's handlers read. One `Op` per instruction of the text, in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "alu/alu.hpp"

namespace monoc::sim {

using alu::Lanes;

struct Wave;
struct Op;
using Handler = void (*)(Wave&, const Op&);

// Indices of the named scalar registers (CDNA3 ISA, scalar operand encodings).
inline constexpr uint16_t kVcc = 106;
inline constexpr uint16_t kM0 = 124;
inline constexpr uint16_t kExec = 126;
inline constexpr uint16_t kNoReg = 0xffff;

struct Src {
  enum Kind : uint8_t { none, vgpr, sgpr, constant, scc, vccz, execz, special };
  Kind kind = none;
  uint8_t dwords = 1;
  uint8_t mods = 0;    // kNeg | kAbs | kSext, only where the op's float helpers apply them
  uint8_t pad = 0;
  uint32_t index = 0;  // register, or first entry in Program::consts for a constant of a vector op
  uint64_t value = 0;  // a constant of a scalar op
};
inline constexpr uint8_t kNeg = 1, kAbs = 2, kSext = 4;

enum class OpClass : uint8_t {
  salu, smem, branch, wait, sleep, barrier, nop, message, valu, trans, mfma, lane, lds_read, lds_write, lds_atomic,
  lds_permute, load, store, atomic, scratch, cache, count
};

enum class AddrMode : uint8_t { buffer, global, global_saddr, flat, scratch };

// What a memory instruction moves. d16 forms fill one half of the register and keep the other.
enum class Data : uint8_t {
  u8, i8, u16, i16, u8_d16, u8_d16_hi, i8_d16, i8_d16_hi, b16_d16, b16_d16_hi, b32, b64, b96, b128,
};

enum class Atomic : uint8_t {
  none, swap, cmpswap, add, sub, rsub, smin, umin, smax, umax, and_, or_, xor_, inc, dec, mskor,
  add_f32, min_f32, max_f32, add_f64, min_f64, max_f64, pk_add_f16, pk_add_bf16
};

struct MemInfo {
  AddrMode mode = AddrMode::global;
  Data data = Data::b32;
  Atomic atomic = Atomic::none;
  uint8_t policy = 0;  // SC0 = 1, NT = 2, SC1 = 16, as FlyDSL's aux
  uint8_t bytes = 4;
  uint8_t dwords = 1;
  bool offen = false, idxen = false, lds = false, returns = false, store = false, wide = false;
  uint16_t vaddr = kNoReg, vdata = kNoReg, srsrc = kNoReg, saddr = kNoReg;
  int32_t offset = 0;
};

// Rare parts of an instruction: DPP, SDWA.
struct Extra {
  bool dpp = false, bound_zero = false, sdwa = false;
  uint8_t dst_sel = 6, dst_unused = 0, src_sel[2] = {6, 6};
  uint64_t dpp_write = ~0ull;  // lanes row_mask and bank_mask let through
  int32_t lane[64] = {};       // DPP source lane, -1: outside the row
};

inline constexpr uint16_t kGeneral = 1, kOverlap = 2, kIgnoreExec = 4, kPoll = 8, kMemory = 16,
                          kReadsScc = 32, kWritesScc = 64, kSaveExec = 128;
// How poison of a scalar op's sources reaches its result (Op::imm2 of OpClass::salu).
enum Spread : int32_t { kSpreadAll = 0, kSpreadAnd, kSpreadOr, kSpreadAndNot, kSpreadBits, kSpreadSelect };
// Op::imm2 of OpClass::lane and OpClass::lds_permute.
inline constexpr int32_t kLaneSwap = 1, kPermutePush = 1;

struct alignas(64) Op {
  Handler fn = nullptr;
  alu::AluFn alu_fn = nullptr;
  const alu::AluMods* mods = nullptr;
  const alu::AluOp* alu = nullptr;
  Src src[5];
  uint16_t dst = kNoReg;       // first VGPR, or first SGPR for scalar ops
  uint16_t dst2 = kNoReg;      // second destination register (swaps)
  uint16_t mask_dst = kNoReg;  // SGPR pair
  uint16_t mask_src = kNoReg;
  uint8_t dst_dwords = 0, nsrc = 0, clamp = 0, omod = 0;
  uint16_t flags = 0;
  OpClass cls = OpClass::nop;
  int32_t imm = 0;  // branch target, SOPK immediate, LDS offset, ...
  int32_t imm2 = 0;
  uint32_t index = 0;
  const Extra* extra = nullptr;
  MemInfo mem;
};

struct OpText {
  std::string mnemonic, text;
  uint32_t line = 0, file = 0, loc = 0;
};

// Kernel entry state, from the kernel descriptor (LLVM AMDGPUUsage, "Initial Kernel Execution State").
struct Entry {
  uint32_t vgprs = 0, accum_offset = 0, lds_bytes = 0, scratch_bytes = 0, kernarg_bytes = 0;
  uint32_t user_sgprs = 0, preload_length = 0, preload_offset = 0;
  bool private_buffer = false, dispatch_ptr = false, queue_ptr = false, kernarg_ptr = false, dispatch_id = false,
       flat_scratch_init = false, private_size = false;
  bool group_x = true, group_y = false, group_z = false, group_info = false;
  uint32_t mode = alu::kModeDefault;
};

struct HandlerEntry {
  const char* name;
  Handler fn;
};

// Handler of an internal name ("valu2", "s_add_u32", "load_b128", ...) in the build for this CPU; nullptr: none.
Handler find_handler(std::string_view name);
const std::vector<std::string>& scalar_mnemonics();

}  // namespace monoc::sim
