// Poison: never-written values on their way through registers. Only waves that hold any pay for it.
#include "machine.hpp"
#include "scalar_util.hpp"

namespace monoc::sim {

Poison& ensure_poison(Wave& w) {
  if (!w.poison) w.poison = new Poison;
  if (!w.poisoned) {
    w.poisoned = true;
    if (w.stop == Stop::none) w.stop = Stop::switch_loop;  // go on in the tracking loop
  }
  return *w.poison;
}

bool any_poison(const Wave& w) {
  if (!w.poison) return false;
  for (uint64_t bits : w.poison->v)
    if (bits) return true;
  for (uint32_t bits : w.poison->s)
    if (bits) return true;
  return w.poison->scc;
}

namespace {

uint64_t scalar_poison(const Wave& w, const Src& src, int dwords) {
  const Poison& p = *w.poison;
  if (src.kind == Src::sgpr) return dwords == 2 ? p.s[src.index] | uint64_t(p.s[src.index + 1]) << 32 : p.s[src.index];
  if (src.kind == Src::scc && p.scc) return ~0ull;
  return 0;
}

uint64_t pair_poison(const Wave& w, unsigned index) { return w.poison->s[index] | uint64_t(w.poison->s[index + 1]) << 32; }
void set_pair(Wave& w, unsigned index, uint64_t bits) {
  w.poison->s[index] = uint32_t(bits);
  w.poison->s[index + 1] = uint32_t(bits >> 32);
}

void reaches(Wave& w, const Op& op, const char* what, int lane = -1) { report(w, op, "poison", what, lane); }

void scalar_step(Wave& w, const Op& op) {
  Poison& p = *w.poison;
  int dwords = op.src[0].kind == Src::none ? 1 : op.src[0].dwords;
  uint64_t full = dwords == 2 ? ~0ull : 0xffffffffull;
  uint64_t pa = op.nsrc > 0 ? scalar_poison(w, op.src[0], dwords) & full : 0;
  uint64_t pb = op.nsrc > 1 ? scalar_poison(w, op.src[1], op.src[1].dwords) & full : 0;
  if (op.flags & kSaveExec) pb = 0;
  bool scc = (op.flags & kReadsScc) && p.scc;
  uint64_t bits = 0, value = 0;
  bool exact = op.imm2 == kSpreadAnd || op.imm2 == kSpreadOr || op.imm2 == kSpreadAndNot;
  if (exact) {
    uint64_t a = dwords == 2 ? read64(w, op.src[0]) : read32(w, op.src[0]);
    uint64_t b = op.flags & kSaveExec ? w.exec() : dwords == 2 ? read64(w, op.src[1]) : read32(w, op.src[1]);
    if (op.imm2 == kSpreadAndNot) b = ~b;
    if (op.imm2 == kSpreadOr) bits = (pa & (~b | pb)) | (pb & (~a | pa)), value = a | b;
    else bits = (pa & (b | pb)) | (pb & (a | pa)), value = a & b;
    bits &= full;
    value &= full;
  } else if (op.imm2 == kSpreadBits) {
    bits = pa | pb;
  } else if (op.imm2 == kSpreadSelect) {
    bits = scc ? full : w.scc ? pa : pb;
  } else {
    bits = (pa | pb || scc) ? ~0ull : 0;
  }
  if (op.flags & kSaveExec) {
    if (bits) return reaches(w, op, "a never-written value reaches EXEC");
    set_pair(w, op.dst, 0);
    p.scc = false;
    return;
  }
  if (op.dst != kNoReg && op.dst_dwords) {
    if ((op.dst == kExec || op.dst == kExec + 1) && bits) return reaches(w, op, "a never-written value reaches EXEC");
    p.s[op.dst] = uint32_t(bits);
    if (op.dst_dwords == 2) p.s[op.dst + 1] = op.imm2 == kSpreadAll ? uint32_t(bits) : uint32_t(bits >> 32);
  }
  if (op.flags & kWritesScc) p.scc = exact ? bits && !(value & ~bits) : bits != 0;
}

// Poison of source dword d over the lanes.
uint64_t source_poison(const Wave& w, const Op& op, int i) {
  const Src& s = op.src[i];
  uint64_t bits = 0;
  if (s.kind == Src::vgpr)
    for (int d = 0; d < s.dwords; ++d) bits |= w.poison->v[s.index + d];
  else if (s.kind == Src::sgpr)
    for (int d = 0; d < s.dwords; ++d) bits |= w.poison->s[s.index + d] ? ~0ull : 0;
  return bits;
}

void mfma_step(Wave& w, const Op& op) {
  Poison& p = *w.poison;
  uint64_t a = source_poison(w, op, 0), b = source_poison(w, op, 1);
  if (op.nsrc > 3) a |= source_poison(w, op, 3);
  if (op.nsrc > 4) b |= source_poison(w, op, 4);
  const std::string_view name = op.alu->mnemonic;
  bool tile16 = name.find("_16x16x") != name.npos && op.dst_dwords == 4 && name.find("f64") == name.npos;
  bool tile32 = name.find("_32x32x") != name.npos && op.dst_dwords == 16;
  uint64_t c[32] = {};
  if (op.src[2].kind == Src::vgpr)
    for (int d = 0; d < op.dst_dwords; ++d) c[d] = p.v[op.src[2].index + d];
  int size = tile16 ? 16 : 32;
  uint64_t rows = 0, columns = 0;
  for (int l = 0; l < 64; ++l) rows |= (a >> l & 1) << (l % size), columns |= (b >> l & 1) << (l % size);
  for (int d = 0; d < op.dst_dwords; ++d) {
    uint64_t bits = c[d];
    for (int l = 0; l < 64 && (a | b); ++l) {
      int row = tile16 ? 4 * (l / 16) + d : 8 * (d / 4) + 4 * (l / 32) + d % 4;
      bool bad = tile16 || tile32 ? (rows >> row & 1) || (columns >> (l % size) & 1) : true;
      bits |= uint64_t(bad) << l;
    }
    p.v[op.dst + d] = bits;
  }
}

void vector_step(Wave& w, const Op& op) {
  Poison& p = *w.poison;
  const alu::AluOp& a = *op.alu;
  if (a.flags & alu::kMfma) return mfma_step(w, op);
  uint64_t exec = w.exec(), write = exec, bits = 0;
  if (a.flags & alu::kSwap) {
    // Send the poison itself through the permutation.
    alignas(64) Lanes in[2], out[2];
    for (int i = 0; i < 2; ++i)
      for (int l = 0; l < 64; ++l) in[i].v[l] = uint32_t(p.v[op.src[i].index] >> l & 1);
    const Lanes* src[2] = {&in[0], &in[1]};
    alu::AluCtx ctx{op.mods};
    op.alu_fn(out, src, ctx);
    uint16_t dst[2] = {op.dst, op.dst2};
    for (int i = 0; i < 2; ++i) {
      uint64_t moved = 0;
      for (int l = 0; l < 64; ++l) moved |= uint64_t(out[i].v[l] & 1) << l;
      p.v[dst[i]] = (p.v[dst[i]] & ~exec) | (moved & exec);
    }
    return;
  }
  uint64_t each[5] = {};
  for (int i = 0; i < op.nsrc; ++i) {
    each[i] = source_poison(w, op, i);
    if (i == 0 && op.extra && op.extra->dpp) {
      uint64_t moved = 0, valid = 0;
      for (int l = 0; l < 64; ++l) {
        int from = op.extra->lane[l];
        bool ok = from >= 0 && (exec >> from & 1);
        valid |= uint64_t(ok) << l;
        moved |= uint64_t(ok && (each[0] >> from & 1)) << l;
      }
      each[0] = moved;
      write &= op.extra->dpp_write & (op.extra->bound_zero ? ~0ull : valid);
    }
    bits |= each[i];
  }
  uint64_t mask = op.mask_src == kNoReg ? 0 : pair_poison(w, op.mask_src);
  if (std::string_view(a.mnemonic).find("v_cndmask") == 0) {
    uint64_t select = w.read64(op.mask_src);
    bits = (each[0] & ~select) | (each[1] & select);
  }
  bits |= mask;
  if ((a.flags & alu::kReadsDst) && op.dst != kNoReg) bits |= p.v[op.dst];
  if ((a.flags & alu::kCross) && bits) bits = ~0ull;
  if (op.mask_dst != kNoReg) set_pair(w, op.mask_dst, bits & write);
  if ((a.flags & alu::kWritesExec) && (bits & write)) return reaches(w, op, "a never-written value reaches EXEC");
  if (op.dst == kNoReg) return;
  for (int d = 0; d < op.dst_dwords; ++d) p.v[op.dst + d] = (p.v[op.dst + d] & ~write) | (bits & write);
}

void lane_step(Wave& w, const Op& op) {
  Poison& p = *w.poison;
  if (op.src[0].kind != Src::vgpr) {  // v_writelane
    int lane = int(read32(w, op.src[1]) & 63);
    bool bad = scalar_poison(w, op.src[0], 1) || scalar_poison(w, op.src[1], 1);
    p.v[op.dst] = (p.v[op.dst] & ~(1ull << lane)) | uint64_t(bad) << lane;
    return;
  }
  if (op.imm2 == kLaneSwap) {
    uint64_t exec = w.exec(), a = p.v[op.dst], b = p.v[op.src[0].index];
    p.v[op.dst] = (a & ~exec) | (b & exec);
    p.v[op.src[0].index] = (b & ~exec) | (a & exec);
    return;
  }
  int lane = op.nsrc > 1 ? int(read32(w, op.src[1]) & 63) : w.exec() ? __builtin_ctzll(w.exec()) : 0;
  bool bad = (p.v[op.src[0].index] >> lane & 1) || (op.nsrc > 1 && scalar_poison(w, op.src[1], 1));
  p.s[op.dst] = bad ? ~0u : 0;
}

void permute_step(Wave& w, const Op& op) {
  Poison& p = *w.poison;
  uint64_t exec = w.exec(), data = p.v[op.mem.vdata], bits = 0;
  bool swizzle = op.extra != nullptr;
  uint64_t index = swizzle ? 0 : p.v[op.mem.vaddr];
  bool push = op.imm2 == kPermutePush;
  for (int l = 0; l < 64; ++l) {
    int other = swizzle ? op.extra->lane[l] : int((w.vgpr[op.mem.vaddr].v[l] + uint32_t(op.mem.offset)) >> 2 & 63);
    if (push) bits |= (exec >> l & 1) ? uint64_t(((data | index) >> l & 1)) << other : 0;
    else bits |= uint64_t((((data & exec) >> other) | (index >> l)) & 1) << l;
  }
  p.v[op.dst] = (p.v[op.dst] & ~exec) | (bits & exec);
}

void memory_step(Wave& w, const Op& op) {
  const Poison& p = *w.poison;
  const MemInfo& m = op.mem;
  uint64_t exec = w.exec();
  if (exec == 0) return;
  uint64_t bad = 0;
  if (m.vaddr != kNoReg) {
    bad |= p.v[m.vaddr];
    bool wide = m.mode == AddrMode::global || m.mode == AddrMode::flat || (m.mode == AddrMode::buffer && m.offen && m.idxen);
    bool lds = op.cls == OpClass::lds_read || op.cls == OpClass::lds_write || op.cls == OpClass::lds_atomic;
    if (wide && !lds) bad |= p.v[m.vaddr + 1];
  }
  if (bad & exec) return reaches(w, op, "a never-written value reaches an address", __builtin_ctzll(bad & exec));
  uint32_t scalar = 0;
  if (m.srsrc != kNoReg) scalar |= p.s[m.srsrc] | p.s[m.srsrc + 1] | p.s[m.srsrc + 2] | p.s[m.srsrc + 3];
  if (m.saddr != kNoReg) scalar |= p.s[m.saddr] | (m.mode == AddrMode::global_saddr ? p.s[m.saddr + 1] : 0);
  if (m.mode == AddrMode::buffer && op.src[0].kind == Src::sgpr) scalar |= p.s[op.src[0].index];
  if (scalar) return reaches(w, op, "a never-written value reaches an address");
  if (m.atomic != Atomic::none) {
    uint64_t data = p.v[m.vdata] | (m.wide ? p.v[m.vdata + 1] : 0);
    if (data & exec) return reaches(w, op, "a never-written value is the operand of an atomic", __builtin_ctzll(data & exec));
  }
}

}  // namespace

void poison_step(Wave& w, const Op& op) {
  switch (op.cls) {
    case OpClass::salu:
      return scalar_step(w, op);
    case OpClass::smem:
      if (scalar_poison(w, op.src[0], 2) || (op.nsrc > 1 && scalar_poison(w, op.src[1], 1)))
        reaches(w, op, "a never-written value reaches an address");
      return;
    case OpClass::branch:
      if ((op.flags & kReadsScc) && w.poison->scc) return reaches(w, op, "a branch depends on a never-written value");
      if (op.mask_src == kVcc) {
        uint64_t bits = pair_poison(w, kVcc);
        if (bits && !(w.read64(kVcc) & ~bits)) reaches(w, op, "a branch depends on a never-written value");
      }
      return;
    case OpClass::valu:
    case OpClass::trans:
    case OpClass::mfma:
      return vector_step(w, op);
    case OpClass::lane:
      return lane_step(w, op);
    case OpClass::lds_permute:
      return permute_step(w, op);
    case OpClass::lds_read:
    case OpClass::lds_write:
    case OpClass::lds_atomic:
    case OpClass::load:
    case OpClass::store:
    case OpClass::atomic:
    case OpClass::scratch:
      return memory_step(w, op);
    default:
      return;
  }
}

}  // namespace monoc::sim
