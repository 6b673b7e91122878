// Decoding of SALU, SMEM and SOPP instructions.
#include <algorithm>
#include <set>
#include <unordered_map>

#include "program.hpp"
#include "scalar_util.hpp"

namespace monoc::sim {
namespace {

const std::unordered_map<std::string, int>& hwreg_ids() {
  static const std::unordered_map<std::string, int> ids = {
      {"HW_REG_MODE", 1}, {"HW_REG_STATUS", 2}, {"HW_REG_TRAPSTS", 3}, {"HW_REG_HW_ID", 4}, {"HW_REG_GPR_ALLOC", 5},
      {"HW_REG_LDS_ALLOC", 6}, {"HW_REG_IB_STS", 7}, {"HW_REG_SH_MEM_BASES", 15}, {"HW_REG_XCC_ID", 20},
      {"HW_REG_SQ_PERF_SNAPSHOT_DATA", 21}};
  return ids;
}

// hwreg(name[, offset, size]) as the 16-bit immediate: id [5:0], offset [10:6], size - 1 [15:11].
int hwreg_immediate(const Operand& o) {
  if (o.kind == OperandKind::integer || o.kind == OperandKind::hex) return int(o.value & 0xffff);
  const std::string& text = o.name;
  if (text.rfind("hwreg(", 0) != 0 || text.back() != ')') throw DecodeError("wants a hwreg(...) operand");
  std::vector<std::string> parts;
  std::string part;
  for (size_t i = 6; i + 1 < text.size(); ++i) {
    if (text[i] == ',') parts.push_back(part), part.clear();
    else if (text[i] != ' ') part += text[i];
  }
  parts.push_back(part);
  // 64, which no field may be, for anything but a small number.
  auto number = [](const std::string& digits) {
    bool small = !digits.empty() && digits.size() <= 2 && digits.find_first_not_of("0123456789") == std::string::npos;
    return small ? std::stoi(digits) : 64;
  };
  auto found = hwreg_ids().find(parts[0]);
  int id = 0;
  if (found != hwreg_ids().end()) id = found->second;
  else if (number(parts[0]) <= 63) id = number(parts[0]);
  else throw DecodeError("hardware register " + parts[0] + " is not modelled");
  int offset = parts.size() > 1 ? number(parts[1]) : 0, size = parts.size() > 2 ? number(parts[2]) : 32;
  if (parts.size() > 3 || id > 63 || offset > 31 || size < 1 || offset + size > 32)
    throw DecodeError("wants hwreg(id, offset, size) of a field inside 32 bits");
  return id | offset << 6 | (size - 1) << 11;
}

const std::set<std::string>& nops() {
  // Caches, priorities and debug aids have no effect in a model without time and with one coherent memory.
  static const std::set<std::string> names = {
      "s_nop", "s_setprio", "s_icache_inv", "s_incperflevel", "s_decperflevel", "s_ttracedata",
      "s_dcache_inv", "s_dcache_wb", "s_dcache_inv_vol", "s_dcache_wb_vol", "buffer_wbl2", "buffer_inv", "s_sendmsg",
      "v_nop", "ds_nop", "buffer_wbinvl1",
      "buffer_wbinvl1_vol"};
  return names;
}

int64_t sopk_immediate(const Operand& o) {
  if (o.kind != OperandKind::integer && o.kind != OperandKind::hex) throw DecodeError("wants a 16-bit immediate");
  return o.value;
}

int dwords_of(const std::string& name) {
  auto ends = [&](const char* suffix) {
    std::string s = suffix;
    return name.size() >= s.size() && name.compare(name.size() - s.size(), s.size(), s) == 0;
  };
  return ends("_b64") || ends("_u64") || ends("_i64") ? 2 : 1;
}

void branch(const Insn& insn, Op& op) {
  expect_operands(insn, 1);
  const Operand& target = operand(insn, 0);
  if (target.kind != OperandKind::label || target.value < 0) throw DecodeError("branch target " + target.name + " is unknown");
  op.imm = int32_t(target.value);
  op.cls = OpClass::branch;
  if (insn.mnemonic.find("scc") != std::string::npos) op.flags |= kReadsScc;
  if (insn.mnemonic.find("vcc") != std::string::npos) op.mask_src = kVcc;
}

void smem(Program&, const Insn& insn, Op& op, int dwords, bool buffer) {
  if (insn.operands.size() < 3) throw DecodeError("takes destination, base and offset");
  op.cls = OpClass::smem;
  op.dst = scalar_register(operand(insn, 0), dwords, "destination");
  op.dst_dwords = uint8_t(dwords);
  op.mem.bytes = uint8_t(4 * dwords);
  op.src[0].kind = Src::sgpr;
  op.src[0].index = scalar_register(operand(insn, 1), buffer ? 4 : 2, "base");
  op.src[0].dwords = buffer ? 4 : 2;
  op.nsrc = 1;
  const Operand& offset = operand(insn, 2);
  op.imm = int32_t(insn.modifier("offset"));
  if (offset.kind == OperandKind::sgpr) {
    op.src[1] = scalar_source(offset, 1);
    op.nsrc = 2;
  } else if (offset.kind == OperandKind::integer || offset.kind == OperandKind::hex) {
    op.imm += int32_t(offset.value);
  } else {
    throw DecodeError("offset must be a scalar register or an immediate");
  }
  op.flags |= kMemory;
}

bool sopp(const Insn& insn, Op& op) {
  const std::string& m = insn.mnemonic;
  if (nops().count(m)) {
    op.fn = require_handler("nop");
    op.cls = m.find("cache") != std::string::npos || m.rfind("buffer_", 0) == 0 ? OpClass::cache
             : m == "s_sendmsg" || m == "s_setprio"                             ? OpClass::message
                                                                                : OpClass::nop;
    return true;
  }
  if (m == "s_waitcnt" || m == "s_waitcnt_vmcnt" || m == "s_waitcnt_lgkmcnt" || m == "s_waitcnt_vscnt") {
    op.cls = OpClass::wait;
    op.imm = int32_t(insn.modifier("vmcnt", 0x7fffffff));
    op.fn = require_handler("s_waitcnt");
    return true;
  }
  if (m == "s_branch" || m.rfind("s_cbranch_", 0) == 0) {
    Handler fn = find_handler(m);
    if (!fn) return false;
    branch(insn, op);
    op.fn = fn;
    return true;
  }
  if (m == "s_endpgm" || m == "s_endpgm_saved") {
    op.fn = require_handler("s_endpgm");
    op.cls = OpClass::branch;
    return true;
  }
  if (m == "s_barrier" || m == "s_sleep" || m == "s_trap") {
    op.fn = require_handler(m);
    op.cls = m == "s_barrier" ? OpClass::barrier : m == "s_sleep" ? OpClass::sleep : OpClass::message;
    expect_operands(insn, m == "s_barrier" ? 0 : 1);
    op.imm = insn.operands.empty() ? 0 : int32_t(operand(insn, 0).value);
    return true;
  }
  return false;
}

}  // namespace

bool decode_scalar(Program& program, const Insn& insn, Op& op) {
  const std::string& m = insn.mnemonic;
  if (sopp(insn, op)) return true;
  if (m.rfind("s_", 0) != 0) return false;
  op.cls = OpClass::salu;
  if (m.rfind("s_load_dword", 0) == 0 || m.rfind("s_buffer_load_dword", 0) == 0) {
    Handler fn = find_handler(m);
    if (!fn) return false;
    bool buffer = m.rfind("s_buffer", 0) == 0;
    std::string tail = m.substr(buffer ? 19 : 12);
    smem(program, insn, op, tail.empty() ? 1 : std::stoi(tail.substr(1)), buffer);
    op.fn = fn;
    return true;
  }
  if (m.rfind("s_cmpk_", 0) == 0) {
    op.fn = find_handler("s_cmp_" + m.substr(7));
    if (!op.fn) return false;
    expect_operands(insn, 2);
    op.src[0] = scalar_source(operand(insn, 0), 1);
    op.src[1].kind = Src::constant;
    int64_t value = sopk_immediate(operand(insn, 1));
    // The unsigned compares zero-extend the 16 bits, the signed ones sign-extend.
    op.src[1].value = m.find("_u32") != std::string::npos ? uint64_t(value & 0xffff) : uint32_t(int32_t(int16_t(value)));
    op.nsrc = 2;
    op.flags |= kWritesScc;
    return true;
  }
  Handler fn = find_handler(m);
  if (!fn) return false;
  op.fn = fn;
  if (m == "s_movk_i32" || m == "s_cmovk_i32" || m == "s_addk_i32" || m == "s_mulk_i32") {
    expect_operands(insn, 2);
    op.dst = scalar_register(operand(insn, 0), 1, "destination");
    op.dst_dwords = 1;
    op.imm = int16_t(sopk_immediate(operand(insn, 1)));
    if (m == "s_addk_i32") op.flags |= kWritesScc;
    if (m == "s_cmovk_i32") op.flags |= kReadsScc;
    if (m[2] == 'a' || m[2] == 'm') op.src[0] = scalar_source(operand(insn, 0), 1), op.nsrc = m == "s_movk_i32" ? 0 : 1;
    return true;
  }
  if (m == "s_getreg_b32") {
    expect_operands(insn, 2);
    op.dst = scalar_register(operand(insn, 0), 1, "destination");
    op.dst_dwords = 1;
    op.imm = hwreg_immediate(operand(insn, 1));
    return true;
  }
  if (m == "s_setreg_b32" || m == "s_setreg_imm32_b32") {
    expect_operands(insn, 2);
    op.imm = hwreg_immediate(operand(insn, 0));
    op.src[0] = scalar_source(operand(insn, 1), 1);
    op.nsrc = 1;
    return true;
  }
  if (m == "s_memtime" || m == "s_memrealtime" || m == "s_getpc_b64") {
    expect_operands(insn, 1);
    op.dst = scalar_register(operand(insn, 0), 2, "destination");
    op.dst_dwords = 2;
    return true;
  }
  if (m.rfind("s_and_b", 0) == 0 || m.rfind("s_and_save", 0) == 0) op.imm2 = kSpreadAnd;
  else if (m.rfind("s_or_b", 0) == 0 || m.rfind("s_or_save", 0) == 0) op.imm2 = kSpreadOr;
  else if (m.rfind("s_andn2_b", 0) == 0) op.imm2 = kSpreadAndNot;
  else if (m.rfind("s_mov_b", 0) == 0 || m.rfind("s_not_b", 0) == 0 || m.rfind("s_xor_b", 0) == 0) op.imm2 = kSpreadBits;
  else if (m.rfind("s_cselect", 0) == 0) op.imm2 = kSpreadSelect;
  if (m.rfind("s_cselect", 0) == 0 || m.rfind("s_addc", 0) == 0 || m.rfind("s_subb", 0) == 0 || m.rfind("s_cmov", 0) == 0)
    op.flags |= kReadsScc;
  static const std::set<std::string> keeps_scc = {"s_cselect", "s_mov", "s_cmov", "s_mul", "s_brev", "s_ff0", "s_ff1", "s_flbit",
                                                  "s_sext", "s_bfm", "s_pack", "s_bitset0", "s_bitset1", "s_bitreplicate"};
  if (!keeps_scc.count(m.substr(0, m.find('_', 2)))) op.flags |= kWritesScc;
  if (m.find("saveexec") != std::string::npos || m.find("wrexec") != std::string::npos) op.flags |= kSaveExec;
  bool compare = m.rfind("s_cmp_", 0) == 0 || m.rfind("s_bitcmp", 0) == 0;
  size_t first = compare ? 0 : 1;
  int width = dwords_of(m);
  int source_width = width;
  if (m.find("_i32_b64") != std::string::npos || m == "s_flbit_i32_i64") width = 1, source_width = 2;
  if (m == "s_bitreplicate_b64_b32") width = 2, source_width = 1;
  if (m.rfind("s_bitset", 0) == 0) source_width = 1;
  if (m == "s_bfm_b64") source_width = 1;
  if (!compare) {
    op.dst = scalar_register(operand(insn, 0), width, "destination");
    op.dst_dwords = uint8_t(width);
  }
  op.nsrc = uint8_t(insn.operands.size() - first);
  static const std::set<std::string> one = {"s_mov", "s_cmov", "s_not", "s_wqm", "s_brev", "s_bcnt0", "s_bcnt1", "s_ff0", "s_ff1",
                                            "s_flbit", "s_sext", "s_abs", "s_quadmask", "s_bitreplicate", "s_bitset0", "s_bitset1"};
  size_t cut = m.find('_', 2);
  bool single = one.count(m.substr(0, cut)) || m.find("saveexec") != std::string::npos || m.find("wrexec") != std::string::npos;
  expect_operands(insn, first + (single ? 1 : 2));
  for (size_t i = 0; i < op.nsrc; ++i) {
    bool amount = i == 1 && (m.rfind("s_lsh", 0) == 0 || m.rfind("s_ashr", 0) == 0 || m.rfind("s_bfe", 0) == 0 ||
                             m.rfind("s_bitcmp", 0) == 0);
    op.src[i] = scalar_source(operand(insn, first + i), amount ? 1 : source_width);
  }
  return true;
}

const std::vector<std::string>& scalar_mnemonics() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all(nops().begin(), nops().end());
    for (const HandlerEntry& entry : scalar_handlers()) all.emplace_back(entry.name);
    for (const HandlerEntry& entry : control_handlers())
      if (std::string(entry.name).rfind("s_", 0) == 0) all.emplace_back(entry.name);
    for (const char* compare : {"eq", "lg", "gt", "ge", "lt", "le"})
      for (const char* type : {"i32", "u32"}) all.push_back(std::string("s_cmpk_") + compare + "_" + type);
    return all;
  }();
  return names;
}

}  // namespace monoc::sim
