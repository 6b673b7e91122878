#include "program.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace monoc::sim {

void run_past_end(Wave& w, const Op& op);

uint32_t Program::constant(const std::vector<uint32_t>& dwords) {
  auto [position, added] = known_.try_emplace(dwords, uint32_t(consts.size()));
  if (added)
    for (uint32_t value : dwords) {
      Lanes lanes;
      std::fill(std::begin(lanes.v), std::end(lanes.v), value);
      consts.push_back(lanes);
    }
  return position->second;
}

const alu::AluMods* Program::keep(const alu::AluMods& mods) { return &mods_.emplace_back(mods); }
Extra* Program::new_extra() { return &extras_.emplace_back(); }

namespace {

bool branches(const Op& op) { return op.cls == OpClass::branch && op.imm >= 0; }
bool works(const Op& op) {
  return op.cls == OpClass::store || op.cls == OpClass::mfma || op.cls == OpClass::barrier || op.cls == OpClass::lds_write;
}

bool pure(const std::vector<Op>& ops, size_t low, size_t high) {
  for (size_t i = low; i <= high; ++i)
    if (works(ops[i])) return false;
  return true;
}

void mark(std::vector<Op>& ops, size_t low, size_t high) {
  for (size_t i = low; i <= high; ++i) ops[i].flags |= kPoll;
}

// A poll loop: the smallest loop around an s_sleep that only loads, compares and branches. What runs only when the loop is
// entered at all (its first try succeeded or not: a matter of scheduling) belongs to it: the block a conditional
// branch shortly before the loop skips together with it.
void mark_polls(std::vector<Op>& ops) {
  constexpr size_t kLongest = 256, kNear = 48;
  for (size_t s = 0; s < ops.size(); ++s) {
    if (ops[s].cls != OpClass::sleep) continue;
    size_t low = 0, high = 0, best = ops.size() + 1;
    for (size_t j = s; j < ops.size(); ++j) {
      if (!branches(ops[j]) || size_t(ops[j].imm) > s) continue;
      size_t start = size_t(ops[j].imm);
      if (j - start < best) best = j - start, low = start, high = j;
    }
    if (best > kLongest || !pure(ops, low, high)) continue;
    mark(ops, low, high);
    for (size_t p = low; p-- > 0 && low - p <= kNear;) {
      size_t target = branches(ops[p]) ? size_t(ops[p].imm) : 0;
      if (target <= high || target > high + kNear) continue;
      if (pure(ops, p + 1, target - 1)) mark(ops, p + 1, target - 1);
      break;
    }
  }
}

}  // namespace

void Program::finish() {
  if (ops.empty()) throw DecodeError("kernel " + name + " has no instructions");
  mark_polls(ops);
  Op end;
  end.fn = run_past_end;
  end.index = uint32_t(ops.size());
  ops.push_back(end);
  texts.push_back({"", "(behind the last instruction)", texts.back().line, 0, 0});
}

const Operand& operand(const Insn& insn, size_t index) {
  if (index >= insn.operands.size())
    throw DecodeError("has " + std::to_string(insn.operands.size()) + " operands, operand " + std::to_string(index + 1) +
                      " is missing");
  return insn.operands[index];
}

void expect_operands(const Insn& insn, size_t count) {
  if (insn.operands.size() != count)
    throw DecodeError("takes " + std::to_string(count) + " operands, not " + std::to_string(insn.operands.size()));
}

uint16_t vector_register(const Program& program, const Operand& o, int dwords, const char* role) {
  if (o.kind != OperandKind::vgpr && o.kind != OperandKind::agpr)
    throw DecodeError(std::string(role) + " must be a vector register");
  if (dwords && o.count != dwords)
    throw DecodeError(std::string(role) + " must be " + std::to_string(dwords) + " registers, not " + std::to_string(o.count));
  int64_t first = o.value + (o.kind == OperandKind::agpr ? program.entry.accum_offset : 0);
  if (first + o.count > program.entry.vgprs)
    throw DecodeError(std::string(role) + " lies behind the kernel's " + std::to_string(program.entry.vgprs) +
                      " vector registers (.amdhsa_next_free_vgpr)");
  return uint16_t(first);
}

uint16_t scalar_register(const Operand& o, int dwords, const char* role) {
  if (o.kind != OperandKind::sgpr) throw DecodeError(std::string(role) + " must be a scalar register");
  if (dwords && o.count != dwords)
    throw DecodeError(std::string(role) + " must be " + std::to_string(dwords) + " registers, not " + std::to_string(o.count));
  if (o.value + o.count > 128) throw DecodeError(std::string(role) + " is no scalar register");
  return uint16_t(o.value);
}

// Constants of scalar operands. Integers sign-extend to 64 bits, hex literals zero-extend; floats are single precision for
// 32 bits and double for 64 (LLVM AMDGPUOperandSyntax, "Conversion of integer and floating-point values").
Src scalar_source(const Operand& o, int dwords) {
  Src src;
  src.dwords = uint8_t(dwords);
  switch (o.kind) {
    case OperandKind::sgpr:
      src.kind = Src::sgpr;
      src.index = scalar_register(o, dwords, "source");
      return src;
    case OperandKind::integer:
      src.kind = Src::constant;
      src.value = dwords == 2 ? uint64_t(o.value) : uint32_t(o.value);
      return src;
    case OperandKind::hex:
      src.kind = Src::constant;
      src.value = uint32_t(o.value);
      return src;
    case OperandKind::floating: {
      src.kind = Src::constant;
      double d = std::bit_cast<double>(o.value);
      src.value = dwords == 2 ? uint64_t(o.value) : std::bit_cast<uint32_t>(float(d));
      return src;
    }
    case OperandKind::special:
      src.kind = o.name == "scc" ? Src::scc : o.name == "vccz" ? Src::vccz : o.name == "execz" ? Src::execz : Src::none;
      if (src.kind != Src::none) return src;
      if (o.name == "null") {
        src.kind = Src::constant;
        return src;
      }
      throw DecodeError("operand " + o.name + " is not modelled");
    default:
      throw DecodeError("source must be a scalar register or a constant");
  }
}

Handler require_handler(const std::string& name) {
  Handler fn = find_handler(name);
  if (!fn) throw std::logic_error("no handler " + name);
  return fn;
}

void decode(Program& program, const Insn& insn, Op& op) {
  op.index = uint32_t(program.ops.size());
  op.imm = -1;
  if (decode_scalar(program, insn, op) || decode_memory(program, insn, op) || decode_lds(program, insn, op) ||
      decode_vector(program, insn, op))
    return check_modifiers(insn);
  throw DecodeError("unknown instruction " + insn.mnemonic, true);
}

std::vector<std::string> known_mnemonics() {
  std::vector<std::string> all = scalar_mnemonics();
  all.insert(all.end(), memory_mnemonics().begin(), memory_mnemonics().end());
  all.insert(all.end(), lds_mnemonics().begin(), lds_mnemonics().end());
  for (const alu::AluOp& op : alu::all_alu()) all.emplace_back(op.mnemonic);
  for (const char* name : {"v_readlane_b32", "v_writelane_b32", "v_readfirstlane_b32", "v_swap_b32", "v_nop",
                           "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32"})
    all.emplace_back(name);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace monoc::sim
